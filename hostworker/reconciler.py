"""Reconciles the engine's containers with the sessions' rows: at start, and periodically.

This is what makes every crash harmless. `decide` is pure; `reconcile` reads, decides and does.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from hostworker import host_probe, runner, starts
from hostworker.runtime.base import ContainerPhase, ContainerState, Key, Runtime
from resources.models import Host
from sessions.lifecycle import HOSTED, Status
from sessions.models import Session

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The differences between rows and containers, by the action that settles each."""

    orphans: list[Key] = field(default_factory=list)  # containers and traces that no live session of this host owns
    exited: list[ContainerState] = field(default_factory=list)  # of RUNNING sessions
    lost: list[Key] = field(default_factory=list)  # RUNNING sessions without a container
    to_start: list[Key] = field(default_factory=list)  # SCHEDULED or PREPARING
    to_stop: list[Key] = field(default_factory=list)  # TERMINATING


def decide(
    running_before: Iterable[Key],
    containers: Iterable[ContainerState],
    rows: dict[Key, Status],
    leftovers: Iterable[Key] = (),
) -> Findings:
    """Return the differences, given keys that were RUNNING before the containers were listed, and the rows read after.

    `leftovers` are attempts that have files or a sandbox but no container, listed before the rows as well.

    Only a session that was RUNNING before the listing can be missed in it; only a container whose row had ended by the
    time of the second reading is an orphan. So a start or stop in progress is never misread.
    """
    found = {(state.session, state.attempt): state for state in containers}
    before = set(running_before)
    findings = Findings(orphans=[key for key in (found | dict.fromkeys(leftovers)) if key not in rows])
    for key, status in rows.items():
        if status == Status.TERMINATING:
            findings.to_stop.append(key)
        elif status != Status.RUNNING:
            findings.to_start.append(key)
        elif key not in found:
            if key in before:
                findings.lost.append(key)
        elif found[key].phase == ContainerPhase.EXITED:
            findings.exited.append(found[key])
    return findings


def reconcile(runtime: Runtime, host: Host, run: Callable[..., object]) -> None:
    """Reconcile this host's containers and rows; starts and stops are submitted by `run(function, *arguments)`.

    Raises EngineUnreachableError when the engine does not answer; then nothing was changed.
    """
    running_before = [key for key, status in _rows(host)[0].items() if status == Status.RUNNING]
    containers, leftovers = runtime.containers(), runtime.leftover_attempts()
    rows, without_address = _rows(host)
    findings = decide(running_before, containers, rows, leftovers)
    for session_id, attempt in findings.orphans:
        if host_probe.is_probing(session_id):
            continue
        logger.warning("session %s: removing what is left of attempt %d", session_id, attempt)
        runner.clear_away(runtime, session_id, attempt)
    for state in findings.exited:
        runner.note_exit(runtime, state)
    for key in without_address:
        runner.note_address(runtime, *key)
    for session in Session.objects.filter(pk__in=[key[0] for key in findings.lost], status=Status.RUNNING):
        runner.note_lost(runtime, session)
    for key in findings.to_start:
        if not runner.is_preparing(*key):
            run(starts.begin, runtime, *key)
    for key in findings.to_stop:
        run(runner.stop, runtime, *key)


def _rows(host: Host) -> tuple[dict[Key, Status], list[Key]]:
    """Return the status of each of the host's sessions, and the RUNNING ones without an address."""
    sessions = Session.objects.filter(host=host, status__in=HOSTED).in_queue_order()
    rows, without_address = {}, []
    for pk, attempt, status, address in sessions.values_list("pk", "attempt", "status", "address"):
        rows[pk, attempt] = Status(status)
        if status == Status.RUNNING and address is None:
            without_address.append((pk, attempt))
    return rows, without_address
