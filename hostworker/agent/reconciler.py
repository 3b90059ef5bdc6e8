"""Reconciles the engine's containers with the sessions' rows: at start, and periodically.

This is what makes every crash harmless. `decide` is pure; `reconcile` reads, decides and does.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from django.db.models import Q

from hostworker.agent import host_probe, starts
from hostworker.containers import parking, resizer, runner
from hostworker.runtime_protocol import ContainerPhase, ContainerState, Key, RemovalError, Runtime
from resources.models import Host
from sessions.lifecycle import HOSTED, Status
from sessions.models import Session, SessionQuerySet

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The differences between rows and containers, by the action that settles each."""

    orphans: list[Key] = field(default_factory=list)  # containers and traces that no live session of this host owns
    exited: list[ContainerState] = field(default_factory=list)  # of RUNNING sessions
    lost: list[Key] = field(default_factory=list)  # RUNNING sessions without a container
    to_start: list[Key] = field(default_factory=list)  # SCHEDULED or PREPARING
    to_stop: list[Key] = field(default_factory=list)  # TERMINATING
    to_keep: list[Key] = field(default_factory=list)  # containers of parked sessions, not saved yet


def decide(
    running_before: Iterable[Key],
    containers: Iterable[ContainerState],
    rows: dict[Key, Status],
    leftovers: Iterable[Key] = (),
    parked: Mapping[Key, Status] = MappingProxyType({}),
) -> Findings:
    """Return the differences, given keys that were RUNNING before the containers were listed, and the rows read after.

    `leftovers` are attempts that have files or a sandbox but no container, listed before the rows as well. `parked` are
    the attempts whose files are kept, read after the containers as well, with the status of their sessions.

    Only a session that was RUNNING before the listing can be missed in it; only a container whose row had ended by the
    time of the second reading is an orphan. So a start or stop in progress is never misread.
    """
    found = {(state.session, state.attempt): state for state in containers}
    before = set(running_before)
    traces = found | dict.fromkeys(leftovers)
    findings = Findings(
        orphans=[key for key in traces if key not in rows and not (key in parked and key in found)],
        to_keep=parking.at_rest(parked, found),
    )
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


def reconcile(
    runtime: Runtime,
    host: Host,
    run: Callable[..., object],
    running_before: Collection[Key] | None = None,
    *,
    may_have_sessions: bool = True,
) -> Collection[Key]:
    """Reconcile this host's containers and rows; starts and stops are submitted by `run(function, *arguments)`.

    Returns what is RUNNING, which the next call takes as `running_before` in place of a query; without sessions before,
    nor anything in the engine, there is nothing to query. Raises EngineUnreachableError when the engine does not
    answer; then nothing was changed.
    """
    if running_before is None:
        running_before = _running(_rows(host))
    containers, leftovers = runtime.containers(), runtime.leftover_attempts()
    if not (may_have_sessions or running_before or containers or leftovers):
        return ()
    rows = _rows(host)
    findings = decide(running_before, containers, rows.hosted, leftovers, rows.parked)
    _settle(runtime, findings)
    for key in rows.without_address:
        runner.note_address(runtime, *key)
    for session_id, resize_id in rows.to_resize:
        run(resizer.apply, runtime, session_id, resize_id)
    to_start = [key for key in findings.to_start if not runner.is_preparing(*key)]
    actions = ((starts.begin, to_start), (runner.stop, findings.to_stop), (runner.keep_parked, findings.to_keep))
    for action, keys in actions:
        for key in keys:
            run(action, runtime, *key)
    return _running(rows)


def _settle(runtime: Runtime, findings: Findings) -> None:
    """Remove what is left of ended sessions, and end those whose containers have ended or are gone."""
    for session_id, attempt in findings.orphans:
        if host_probe.is_probing(session_id):
            continue
        logger.warning("session %s: removing what is left of attempt %d", session_id, attempt)
        try:
            runner.clear_away(runtime, session_id, attempt)
        except RemovalError as error:  # which keeps nothing else from being done
            logger.error("session %s: attempt %d cannot be removed, will try again: %s", session_id, attempt, error)
    for state in findings.exited:
        runner.note_exit(runtime, state)
    lost = [session_id for session_id, _ in findings.lost]
    for session in Session.objects.filter(pk__in=lost, status=Status.RUNNING):
        runner.note_lost(runtime, session)


@dataclass(frozen=True, slots=True)
class _Rows:
    """This host's sessions: those that hold its resources, the RUNNING ones without an address, those it keeps."""

    hosted: dict[Key, Status] = field(default_factory=dict)
    without_address: list[Key] = field(default_factory=list)
    parked: dict[Key, Status] = field(default_factory=dict)  # by the attempt whose files are kept
    to_resize: list[tuple[str, str]] = field(default_factory=list)  # RUNNING ones, with the ids of their resizes


def sessions_of(host: Host) -> SessionQuerySet:
    """Return the sessions that hold resources of this host, and those whose files it keeps."""
    return Session.objects.filter(Q(host=host, status__in=HOSTED) | Q(parked_on=host, ended_at=None))


def _running(rows: _Rows) -> list[Key]:
    return [key for key, status in rows.hosted.items() if status == Status.RUNNING]


def _rows(host: Host) -> _Rows:
    rows = _Rows()
    columns = ("pk", "attempt", "status", "address", "cluster__first_port")
    placed = ("host_id", "parked_on_id", "parked_attempt", "resize")
    stored: Iterable[Any] = sessions_of(host).in_queue_order().values_list(*columns, *placed)
    for pk, attempt, name, address, first_port, host_id, parked_on, parked_attempt, resize in stored:
        status = Status(name)
        if parked_on == host.pk:
            rows.parked[pk, parked_attempt] = status
        if host_id != host.pk or status not in HOSTED:
            continue
        rows.hosted[pk, attempt] = status
        if status == Status.RUNNING and address is None and first_port is None:
            rows.without_address.append((pk, attempt))
        if status == Status.RUNNING and resize:
            rows.to_resize.append((pk, resize["id"]))
    return rows
