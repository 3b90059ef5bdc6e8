"""Polls the GPUs from the host, out of reach of sessions, and stops sessions that use more than their lease.

It is the guarantee behind the hook, which a tenant can get around. What it sees is also what usage is recorded from.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from django.db.models import Prefetch

from hostworker.enforcement.arbiter_folder import Charge
from hostworker.enforcement.telemetry import GpuProcess, Telemetry
from hostworker.gpus.gpu_times import GpuTimes
from hostworker.gpus.violations import (
    GpuAllowance,
    GpuUse,
    SessionDevice,
    Violation,
    assess,
    assess_charges,
    assess_time,
    assess_turns,
)
from hostworker.privileged.host_privileges import HostPrivileges
from hostworker.runtime_protocol import Key
from resources.gpus.shares import Sharing, share_bytes
from resources.gpus.tiers import GATED, UNHOOKED
from resources.models import Gpu, Host
from sessions import notes
from sessions.launching import services
from sessions.lifecycle import Status
from sessions.models import GpuShare, Session

logger = logging.getLogger(__name__)

POLL_INTERVAL_SECONDS: Final = 2.0
MEASURE_SECONDS: Final = 10
MAX_AGE_SECONDS: Final = 3 * MEASURE_SECONDS  # an older reading says nothing about now
OVERUSE_REPEAT: Final = timedelta(hours=1)  # until too much GPU time of the same session is noted again
NANOSECONDS: Final = 10**9
NO_CHARGE: Final = Charge(total=0, unheld=0)

DevicePercents = Mapping[SessionDevice, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionGpuUse:
    """What a session uses of its GPUs, and of their time in percent; None is what the driver does not say."""

    memory_bytes: int | None
    utilisation: int | None


class Watchdog:
    """Watches one host's GPUs; `hooks` returns the inodes of our hook.

    `charged` returns what of each device the arbiter has charged to each session so far, None where it does not answer.
    `charged_memory` returns the bytes of each device that the hook has charged to an attempt.
    """

    def __init__(
        self,
        host: Host,
        telemetry: Telemetry,
        hooks: Callable[[], frozenset[int]],
        context_memory: int,
        privileges: HostPrivileges,
        charged: Callable[[], Mapping[SessionDevice, Charge] | None] = lambda: None,
        charged_memory: Callable[[Key], Mapping[str, int] | None] = lambda key: None,
    ) -> None:
        self._host = host
        self._telemetry = telemetry
        self._hooks = hooks
        self._context_memory = context_memory
        self._privileges = privileges
        self._charged = charged
        self._charged_memory = charged_memory
        self._uuids = list(Gpu.objects.filter(host=host, is_present=True).values_list("uuid", flat=True))
        self._silent: frozenset[str] = frozenset()  # devices that do not answer
        self._warned: Collection[SessionDevice] = ()
        self._overruns: Mapping[SessionDevice, int] = {}
        self._uncharged: Mapping[SessionDevice, int] = {}
        self._times = GpuTimes()
        self._owners: Mapping[int, str] = {}
        self._charges: Mapping[SessionDevice, Charge] | None = None  # at the end of the last window
        self._strays: Mapping[SessionDevice, int] = {}  # windows in a row
        self._measured_at = 0.0
        self._readings: Mapping[str, SessionGpuUse] = {}

    def poll(self) -> None:
        """Compare processes on the GPUs with the leases, stop sessions that exceed them, and measure usage when due."""
        seen = self._look()
        is_due = time.monotonic() - self._measured_at >= MEASURE_SECONDS
        if not seen and not is_due:
            self._warned, self._uncharged = (), {}
            return
        sessions = self._sessions()
        containers = {process.pid: self._privileges.container_of(process.pid) for process in seen}
        owners = {pid: sessions[container].pk for pid, container in containers.items() if container in sessions}
        uses = self._uses(seen, owners)
        allowances = {place: each for session in sessions.values() for place, each in _allowances(session).items()}
        assessment = assess(uses, allowances, self._warned, self._context_memory)
        self._warned = assessment.warned
        self._stop(assessment.violations)
        self._compare_charges(sessions.values(), uses, allowances)
        self._note_times(uses, owners)
        if is_due:
            self._measure(sessions.values(), uses, allowances)

    def readings(self) -> Mapping[str, SessionGpuUse]:
        """Return what each session uses of its GPUs, by id; {} where that was not measured lately."""
        return self._readings if time.monotonic() - self._measured_at < MAX_AGE_SECONDS else {}

    def _look(self) -> list[GpuProcess]:
        """Return the processes on all devices that answer."""
        by_gpu = {uuid: self._telemetry.processes(uuid) for uuid in self._uuids}
        self._silent = frozenset(uuid for uuid, found in by_gpu.items() if found is None)
        return [process for found in by_gpu.values() for process in found or ()]

    def _sessions(self) -> dict[str, Session]:
        """Return the running sessions of this host that hold GPUs, by container."""
        running = Session.objects.filter(host=self._host, status=Status.RUNNING, fgpu__gt=0)
        shares = Prefetch("lease__shares", GpuShare.objects.select_related("gpu"))
        related = running.select_related("resource_group", "host", "lease").prefetch_related(shares)
        return {session.container_id: session for session in related}

    def _uses(self, seen: Iterable[GpuProcess], owners: Mapping[int, str]) -> dict[SessionDevice, GpuUse]:
        parts: dict[SessionDevice, list[tuple[int | None, bool]]] = defaultdict(list)
        hooks = self._hooks()
        for process in seen:
            if owner := owners.get(process.pid):
                mapped = self._privileges.hook_inodes(process.pid)
                is_unhooked = mapped is not None and not mapped & hooks
                parts[owner, process.uuid].append((process.memory_bytes, is_unhooked))
        return {place: _use(each) for place, each in parts.items()}

    def _compare_charges(
        self,
        sessions: Collection[Session],
        uses: Mapping[SessionDevice, GpuUse],
        allowances: Mapping[SessionDevice, GpuAllowance],
    ) -> None:
        """Compare what the driver says that sessions hold with their own accounts, which hold less only if bypassed."""
        charges = {
            (session.pk, uuid): held
            for session in sessions
            for uuid, held in (self._charged_memory((session.pk, session.attempt)) or {}).items()
        }
        assessment = assess_charges(uses, allowances, charges, self._uncharged, self._context_memory)
        self._uncharged = assessment.overruns
        self._stop_or_note(sessions, assessment.violations)

    def _stop(self, violations: Mapping[str, Violation]) -> None:
        for session in Session.objects.filter(pk__in=violations).select_related("host"):
            reason, words = violations[session.pk]
            logger.warning("session %s: stopped by the watchdog: %s", session.pk, words)
            services.end(session, reason, words)

    def _stop_or_note(self, sessions: Iterable[Session], violations: Mapping[str, Violation]) -> None:
        """Stop the sessions in violation where their group says so; note it of the others.

        What the driver says of time and of contexts' memory is coarse, and has been calibrated on no hardware yet.
        """
        noted = [each for each in sessions if each.pk in violations and not each.resource_group.end_gpu_overuse]
        self._note(noted, violations)
        known = {session.pk for session in noted}
        self._stop({session_id: each for session_id, each in violations.items() if session_id not in known})

    def _note(self, sessions: Iterable[Session], violations: Mapping[str, Violation]) -> None:
        """Note it on the timelines of sessions that go on, by which superadmins are told."""
        for session in sessions:
            reason, words = violations[session.pk]
            if notes.note_once(session, reason, words, within=OVERUSE_REPEAT):
                logger.warning("session %s: goes on, but %s", session.pk, words)

    def _note_times(self, uses: Iterable[SessionDevice], owners: Mapping[int, str]) -> None:
        """Note what the driver recorded since the last look; it may be of processes that were only there then."""
        known = {**self._owners, **owners}
        self._owners = owners
        here: dict[str, set[str]] = defaultdict(set)
        for session, uuid in uses:
            here[uuid].add(session)
        for uuid, sessions in here.items():
            if by_process := self._telemetry.busy_by_process(uuid):
                self._times.note(uuid, sessions, by_process, known)

    def _measure(
        self,
        sessions: Collection[Session],
        uses: Mapping[SessionDevice, GpuUse],
        allowances: Mapping[SessionDevice, GpuAllowance],
    ) -> None:
        """Close the window: store what each session uses, and stop those that took too much time for too long."""
        now = time.monotonic()
        percents = self._times.take()
        charged, strays = self._charged_percents(now)
        self._readings = {session.pk: self._reading(session, uses, percents) for session in sessions}
        self._measured_at = now
        assessment = assess_time(
            {place: percents.get(place) for place in {*percents, *(self._overruns.keys() & allowances.keys())}},
            {place: _with_burst(place, allowed, charged) for place, allowed in allowances.items()},
            self._overruns,
        )
        self._overruns = assessment.overruns
        self._stop_or_note(sessions, assessment.violations)
        if strays is not None:
            turns = assess_turns(strays, self._strays)
            self._strays = turns.overruns
            self._note([session for session in sessions if session.pk in turns.violations], turns.violations)

    def _charged_percents(self, now: float) -> tuple[DevicePercents | None, DevicePercents | None]:
        """Return what the arbiter charged in this window, in percent of each device, and what far from any turn.

        None where that is not known.
        """
        before, self._charges = self._charges, self._charged()
        if self._charges is None or before is None:
            return None, None
        span = max(now - self._measured_at, POLL_INTERVAL_SECONDS) * NANOSECONDS
        pairs = {place: (before.get(place, NO_CHARGE), charge) for place, charge in self._charges.items()}
        return (
            {place: 100 * (new.total - old.total) / span for place, (old, new) in pairs.items()},
            {place: 100 * (new.unheld - old.unheld) / span for place, (old, new) in pairs.items()},
        )

    def _reading(
        self, session: Session, uses: Mapping[SessionDevice, GpuUse], percents: Mapping[SessionDevice, float]
    ) -> SessionGpuUse:
        """Return what the session uses now."""
        places = [(session.pk, share.gpu.uuid) for share, _ in session.held_shares]
        own = [use for place, use in uses.items() if place[0] == session.pk]
        is_partial = any(use.is_partial for use in own) or any(uuid in self._silent for _, uuid in places)
        return SessionGpuUse(
            memory_bytes=None if is_partial else sum(use.memory_bytes for use in own),
            utilisation=_mean([self._percent(place, uses, percents) for place in places]),
        )

    def _percent(
        self, place: SessionDevice, uses: Iterable[SessionDevice], percents: Mapping[SessionDevice, float]
    ) -> float | None:
        """Return the percent of the device's time that the session takes; None where it is not known.

        Without a record of its processes, the whole device's figure is that of the one session that uses it.
        """
        if place[1] in self._silent:
            return None
        if place in percents or place not in uses:
            return percents.get(place, 0)
        is_alone = sum(uuid == place[1] for _, uuid in uses) == 1
        return self._telemetry.busy(place[1]) if is_alone else None


def _use(parts: Sequence[tuple[int | None, bool]]) -> GpuUse:
    sizes = [size for size, _ in parts]
    return GpuUse(
        memory_bytes=sum(size for size in sizes if size is not None),
        is_partial=None in sizes,
        processes=len(parts),
        unhooked=sum(is_unhooked for _, is_unhooked in parts),
    )


def _allowances(session: Session) -> dict[SessionDevice, GpuAllowance]:
    capacity = session.resource_group.gpu_capacity
    return {
        (session.pk, share.gpu.uuid): GpuAllowance(
            memory_bytes=None if tier in UNHOOKED else share_bytes(share.gpu.memory, share.milli, capacity),
            is_hooked=tier not in UNHOOKED,
            percent=100 * share.milli / capacity if tier in GATED else None,
            can_burst=session.resource_group.sharing == Sharing.BURST,
        )
        for share, tier in session.held_shares
    }


def _with_burst(
    place: SessionDevice, allowed: GpuAllowance, charged: Mapping[SessionDevice, float] | None
) -> GpuAllowance:
    """Return what the session may take of the device's time, with what the arbiter gave it of others' shares."""
    if allowed.percent is None or not allowed.can_burst:
        return allowed
    percent = None if charged is None else max(allowed.percent, charged.get(place, 0))
    return replace(allowed, percent=percent)


def _mean(percents: Sequence[float | None]) -> int | None:
    known = [percent for percent in percents if percent is not None]
    return round(sum(known) / len(known)) if known else None
