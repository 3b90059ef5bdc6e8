"""Binds the name of a host to one machine, so that a cloned machine cannot take its sessions for lost."""

import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from django.db.models.functions import Now

from resources import procfs
from resources.hosts.services import SILENCE
from resources.models import Host, HostStatus

logger = logging.getLogger(__name__)

MACHINE_ID: Final = Path("/etc/machine-id")
POLL_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class HostIdentity:
    """What tells machines apart, also clones of one disk: those have the same ids, but not the same boot."""

    machine_id: str
    engine_id: str  # "" where the engine does not answer at present
    boot_id: str

    def is_machine_of(self, host: Host) -> bool:
        """Return whether the host is bound to this machine, or to none yet."""
        same_engine = not self.engine_id or host.engine_id in ("", self.engine_id)
        return same_engine and host.machine_id in ("", self.machine_id)


class HostNameTakenError(Exception):
    """The name belongs to another machine."""


def this_identity(engine_id: str) -> HostIdentity:
    """Return the identity of this machine, whose container engine has this id."""
    return HostIdentity(machine_id=_text_of(MACHINE_ID), engine_id=engine_id, boot_id=procfs.boot_id())


def claim(name: str, identity: HostIdentity, *, replaces: bool = False) -> None:
    """Bind the name to this machine, or confirm that it is; no-op for a host that is not known yet.

    A worker of another boot that still sends heartbeats keeps the name; to tell takes up to SILENCE. A host that is
    bound to another machine gives its name up only where `replaces` says that this one takes its place.
    Raises HostNameTakenError.
    """
    host = Host.objects.filter(name=name).first()
    if host is None:
        return
    is_other_boot = bool(host.boot_id) and host.boot_id != identity.boot_id
    if is_other_boot and _beats(host):
        raise HostNameTakenError(
            f"Another machine runs a host worker under the name {name}. Give this one a name of its own "
            "(COMPUTE_HOST_NAME), or stop the other one first."
        )
    if not identity.is_machine_of(host) and not replaces:
        raise HostNameTakenError(
            f"The name {name} belongs to another machine or container engine, which is silent. If this one takes its "
            "place, start it once with `manage.py hostworker --replace`; else give it a name of its own "
            "(COMPUTE_HOST_NAME)."
        )
    _bind(host, identity)


def _bind(host: Host, identity: HostIdentity) -> None:
    """Write the identity. Raises HostNameTakenError where another machine was faster."""
    known = {"machine_id": host.machine_id, "engine_id": host.engine_id, "boot_id": host.boot_id}
    found = {"machine_id": identity.machine_id, "boot_id": identity.boot_id}
    if identity.engine_id:
        found["engine_id"] = identity.engine_id
    if not Host.objects.filter(pk=host.pk, **known).update(**found, heartbeat_at=Now()):
        raise HostNameTakenError(f"Another machine took the name {host.name} at this moment.")


def _beats(host: Host) -> bool:
    """Return whether somebody else sends the host's heartbeats; waits until that can be told."""
    alive = Host.objects.filter(pk=host.pk, heartbeat_at__gt=Now() - SILENCE).exclude(status=HostStatus.LOST)
    while alive.exists():
        if not alive.filter(heartbeat_at=host.heartbeat_at).exists():
            return True
        time.sleep(POLL_SECONDS)
    return False


def _text_of(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
