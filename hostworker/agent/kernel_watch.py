"""Keeps one session from taking what the kernel limits for all sessions of a host together.

The limits are raised beyond what a session's memory can hold, where that may be done, and held there. For those that
stay within reach it is watched who holds most: superadmins are told who nearly exhausts a limit for all, and a session
that holds most of it at two polls in a row is ended. See docs/isolation.md.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from hostworker.privileged.base import KernelUse
from hostworker.privileged.host_privileges import HostPrivileges
from hostworker.privileged.kernel_limits import low_limits
from resources.models import Host
from sessions import notes
from sessions.launching import services
from sessions.lifecycle import Reason, Status
from sessions.models import Session

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 5.0
NEARLY: Final = 0.75  # of a limit, held by all sessions together
MOST: Final = 0.5  # of a limit, held by one
REPEAT: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """The container that holds most of what is nearly exhausted."""

    container: str
    kind: str
    held: int  # by the container
    total: int  # by all
    limit: int

    @property
    def is_to_blame(self) -> bool:
        """Whether it has taken so much that it ends."""
        return self.held > MOST * self.limit

    @property
    def detail(self) -> str:
        """What is said of it, in a sentence."""
        return (
            f"The sessions of its host hold {self.total} of the {self.limit} {self.kind} that the kernel allows all of "
            f"them together, and this one holds most: {self.held}."
        )


def excesses(use: KernelUse) -> list[Excess]:
    """Return who holds most of each kind that is nearly exhausted. Pure."""
    found = []
    for kind, limit in use.limits.items():
        held = {container: counts.get(kind, 0) for container, counts in use.held.items()}
        total = sum(held.values())
        if held and total > NEARLY * limit:
            most = max(held, key=lambda container: held[container])
            found.append(Excess(container=most, kind=kind, held=held[most], total=total, limit=limit))
    return found


class KernelWatch:
    """The kernel's shared limits on one host."""

    def __init__(self, host: Host, privileges: HostPrivileges) -> None:
        self.may_have_sessions: Callable[[], bool] = lambda: True
        self._host = host
        self._privileges = privileges
        self._blamed: frozenset[tuple[str, str]] = frozenset()  # (container, kind) at the last poll
        self._low: Mapping[str, int] = {}

    def poll(self) -> None:
        """Raise the limits, and look who holds most, where the host may have sessions. Raises PrivilegesError."""
        try:
            self._privileges.raise_kernel_limits()
        finally:
            self._log_low_limits()
        if not self.may_have_sessions():
            return
        running = Session.objects.filter(host=self._host, status=Status.RUNNING).exclude(container_id="")
        sessions = {each.container_id: each for each in running.select_related("host")}
        found = excesses(self._privileges.kernel_use(sorted(sessions))) if sessions else []
        for excess in found:
            session = sessions[excess.container]
            if excess.is_to_blame and (excess.container, excess.kind) in self._blamed:
                services.end(session, Reason.SHARED_LIMIT, excess.detail)
            elif notes.note_once(session, Reason.SHARED_LIMIT, excess.detail, within=REPEAT):
                logger.warning("session %s: %s", session.pk, excess.detail)
        self._blamed = frozenset((each.container, each.kind) for each in found if each.is_to_blame)

    def _log_low_limits(self) -> None:
        low = low_limits()
        if low and low != self._low:
            text = ", ".join(f"{name} is {number}" for name, number in low.items())
            logger.error("host %s: limits of the kernel that sessions share could not be raised: %s", self._host, text)
        self._low = low
