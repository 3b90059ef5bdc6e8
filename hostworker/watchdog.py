"""Polls the GPUs from the host, out of reach of sessions, and stops sessions that use more than their lease.

It is the guarantee behind the hook, which a tenant can get around. What it sees is also what usage is recorded from.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from hostworker.enforcement.telemetry import GpuProcess, Telemetry
from hostworker.privileged.base import HostPrivileges
from hostworker.violations import GpuAllowance, GpuUse, SessionDevice, assess
from resources.models import Gpu, Host
from resources.shares import share_bytes
from resources.tiers import UNHOOKED
from sessions import services
from sessions.lifecycle import Status
from sessions.models import Session

logger = logging.getLogger(__name__)

POLL_INTERVAL_SECONDS: Final = 2.0
MEASURE_SECONDS: Final = 10
KEPT_SECONDS: Final = 3 * MEASURE_SECONDS  # an older reading says nothing about now


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionGpuUse:
    """What a session uses of its GPUs; the utilisation, in percent of their time, is None where it is not known."""

    memory_bytes: int
    utilisation: int | None


class Watchdog:
    """Watches one host's GPUs; `hooks` returns the inodes of our hook."""

    def __init__(
        self,
        host: Host,
        telemetry: Telemetry,
        hooks: Callable[[], frozenset[int]],
        context_memory: int,
        privileges: HostPrivileges,
    ) -> None:
        self._host = host
        self._telemetry = telemetry
        self._hooks = hooks
        self._context_memory = context_memory
        self._privileges = privileges
        self._uuids = list(Gpu.objects.filter(host=host, is_present=True).values_list("uuid", flat=True))
        self._warned: Collection[SessionDevice] = ()
        self._measured_at = 0.0
        self._readings: Mapping[str, SessionGpuUse] = {}

    def poll(self) -> None:
        """Compare processes on the GPUs with the leases, stop sessions that exceed them, and measure usage when due."""
        seen = self._telemetry.processes(self._uuids)
        is_due = time.monotonic() - self._measured_at >= MEASURE_SECONDS
        if not seen and not is_due:
            self._warned = ()
            return
        sessions = self._sessions()
        owners = {process.pid: sessions.get(self._privileges.container_of(process.pid)) for process in seen}
        uses = self._uses(seen, owners)
        self._enforce(uses, sessions.values())
        if is_due:
            self._readings = self._measure(sessions.values(), uses, owners)
            self._measured_at = time.monotonic()

    def readings(self) -> Mapping[str, SessionGpuUse]:
        """Return what each session uses of its GPUs, by id; {} where that was not measured lately."""
        return self._readings if time.monotonic() - self._measured_at < KEPT_SECONDS else {}

    def _sessions(self) -> dict[str, Session]:
        """Return the running sessions of this host that hold GPUs, by container."""
        running = Session.objects.filter(host=self._host, status=Status.RUNNING, fgpu__gt=0)
        related = running.select_related("resource_group", "host").prefetch_related("lease__shares__gpu")
        return {session.container_id: session for session in related}

    def _uses(self, seen: Iterable[GpuProcess], owners: Mapping[int, Session | None]) -> dict[SessionDevice, GpuUse]:
        parts: dict[SessionDevice, list[tuple[int, bool]]] = defaultdict(list)
        hooks = self._hooks()
        for process in seen:
            if owner := owners[process.pid]:
                mapped = self._privileges.hook_inodes(process.pid)
                is_unhooked = mapped is not None and not mapped & hooks
                parts[owner.pk, process.uuid].append((process.memory_bytes, is_unhooked))
        return {
            place: GpuUse(
                memory_bytes=sum(size for size, _ in each), processes=len(each), unhooked=sum(bad for _, bad in each)
            )
            for place, each in parts.items()
        }

    def _enforce(self, uses: Mapping[SessionDevice, GpuUse], sessions: Iterable[Session]) -> None:
        allowances = {place: allowed for session in sessions for place, allowed in _allowances(session).items()}
        assessment = assess(uses, allowances, self._warned, self._context_memory)
        self._warned = assessment.warned
        for session in Session.objects.filter(pk__in=assessment.violations).select_related("host"):
            reason, words = assessment.violations[session.pk]
            logger.warning("session %s: stopped by the watchdog: %s", session.pk, words)
            services.end(session, reason, words)

    def _measure(
        self, sessions: Iterable[Session], uses: Mapping[SessionDevice, GpuUse], owners: Mapping[int, Session | None]
    ) -> dict[str, SessionGpuUse]:
        """Return what each session uses now."""
        busy = self._busy(uses, owners)
        return {
            session.pk: SessionGpuUse(
                memory_bytes=sum(use.memory_bytes for place, use in uses.items() if place[0] == session.pk),
                utilisation=_mean([busy[session.pk, share.gpu.uuid] for share, _ in session.held_shares]),
            )
            for session in sessions
        }

    def _busy(
        self, uses: Mapping[SessionDevice, GpuUse], owners: Mapping[int, Session | None]
    ) -> dict[SessionDevice, int | None]:
        """Return the percent of each device's time that each session uses; None where it is not known."""
        busy: dict[SessionDevice, int | None] = defaultdict(lambda: 0)
        for uuid in self._uuids:
            here = [place for place in uses if place[1] == uuid]
            by_process = self._telemetry.busy_by_process(uuid)
            for place in here:
                parts = [percent for pid, percent in by_process.items() if (o := owners.get(pid)) and o.pk == place[0]]
                alone = self._telemetry.busy(uuid) if len(here) == 1 else None
                busy[place] = min(100, sum(parts)) if by_process else alone
        return busy


def _allowances(session: Session) -> dict[SessionDevice, GpuAllowance]:
    capacity = session.resource_group.gpu_capacity
    return {
        (session.pk, share.gpu.uuid): GpuAllowance(
            memory_bytes=share_bytes(share.gpu.memory, share.milli, capacity), is_hooked=tier not in UNHOOKED
        )
        for share, tier in session.held_shares
    }


def _mean(percents: list[int | None]) -> int | None:
    known = [percent for percent in percents if percent is not None]
    return round(sum(known) / len(known)) if known else None
