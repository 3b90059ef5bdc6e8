"""What makes hosts and takes them away: the interface of providers. No Django.

A provider is made anew for each use from the validated configuration of its pool. Its calls may take long, so they run
in a Celery worker with a time limit, never in a pass of the scheduler nor in a web process. Nothing is remembered
between calls: what a provider knows is what `list` finds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, Protocol


class ProviderError(Exception):
    """A provider refused, failed or did not answer; its words are shown to administrators and to who waits."""


class HostShape(NamedTuple):
    """What a host that is made has."""

    cpus: int
    memory_bytes: int
    gpu_count: int = 0
    gpu_kind: str = ""  # in the provider's words, such as the type of a GRES; empty: whichever


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRequest:
    """A host that is to be made, and to join by itself."""

    name: str  # of the host; letters, digits and hyphens; begins with the installation's prefix; never used again
    group: str  # the resource group that it joins
    shape: HostShape
    join_token: str  # taken once by `manage.py join JOIN_ADDRESS --token ...`; secret, as credentials come of it
    join_address: str  # of the platform
    hold_until: datetime | None = None  # not needed longer; None: until it is deleted


class ProvidedState(StrEnum):
    """What a provider says of a host."""

    PENDING = "PENDING"  # asked for, not given yet
    RUNNING = "RUNNING"  # given, so perhaps paid for
    ENDED = "ENDED"  # given back, as planned; need not be listed
    FAILED = "FAILED"  # will never run, or ended otherwise; need not be listed


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvidedHost:
    """A host as its provider knows it."""

    identifier: str  # the provider's own, such as a job's number
    state: ProvidedState
    host_name: str | None = None  # the name of its request
    reason: str = ""  # in words, why it is not running
    ends_at: datetime | None = None  # when the provider takes it back by itself
    is_left: bool = True  # whether there is something to delete, though it failed


class Provider(Protocol):
    """Makes hosts; each method may be called twice with the same arguments, and raises ProviderError."""

    def create(self, request: HostRequest) -> str:
        """Ask for a host, and return its identifier; a second call with the same name makes no second host.

        It need not be running when this returns. If the caller dies before it has stored the identifier, the host is
        found by `list` and its name.
        """
        ...

    def list(self) -> Sequence[ProvidedHost]:
        """Return all hosts of this installation, whose names begin with its prefix; those of others never."""
        ...

    def delete(self, identifier: str) -> None:
        """Give a host back, whatever its state; one that is gone, or was never known, is fine."""
        ...
