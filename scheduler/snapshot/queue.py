"""Reads the state that a pass decides on, in full or what has changed, in a constant number of queries."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Final, NamedTuple

from django.db import connection

from accounts.limits import PolicyLimits
from resources.amounts.units import CORE_MILLI
from scheduler.core.types import (
    EPOCH,
    Beside,
    LimitHolder,
    RunningSession,
    SessionRequest,
    Shape,
    Snapshot,
    Traits,
    by_gpu_memory,
    entries_of,
    in_groups,
)
from scheduler.core.waiting.calibration import Calibration
from scheduler.core.waiting.run_times import RunTimes, stem_of
from scheduler.snapshot.claims import holds_of
from scheduler.snapshot.cluster import hosts_of, rules_of, running_sessions
from scheduler.snapshot.compiled_queries import fetch
from scheduler.snapshot.elastic_hosts import load_outlooks
from scheduler.snapshot.fair_use import Used, has_fair_group, load_used, load_weights, used_by_owners_of
from scheduler.snapshot.host_traits import OfferedTraits, gpu_choices, load_traits, needed_traits, trait_names
from scheduler.snapshot.limit_holders import NOTHING, limits_of, project_holders, project_limits_of, usage_of
from scheduler.snapshot.past import load_calibrations, load_past
from scheduler.snapshot.waiting_rows import WaitingRow, dependencies, waiting_rows
from sessions.lifecycle import Reason
from sessions.models import (
    WaitStatus,
    group_waits,
)
from sessions.requeueing import host_faults
from sessions.requeueing.preemption import StoredClaim

NO_DEPENDENCY: Final = EPOCH  # in place of the time at which the last was met, for sessions without dependencies
TURN_PATIENCE: Final = timedelta(seconds=10)  # for the pass over a group that a session prefers
CHANGE_RETENTION_SECONDS: Final = 300  # longer than the interval at which every reader reads everything again
_CHANGED: Final = """
    WITH changed AS (
        SELECT unnest(sessions) AS id FROM compute_change
        WHERE xid >= %(since)s::xid8 AND NOT EXISTS (
            SELECT FROM unnest(%(xids)s::xid8[], %(begun)s::timestamptz[], %(ended)s::timestamptz[])
                AS own (xid, begun, ended)
            WHERE own.xid = compute_change.xid AND at BETWEEN own.begun AND own.ended
        )
        UNION SELECT unnest(%(also)s::varchar[])
    )
    SELECT pg_snapshot_xmin(pg_current_snapshot())::text,
           EXISTS (SELECT FROM compute_change WHERE xid >= %(since)s::xid8 AND sessions IS NULL),
           ARRAY(SELECT id FROM changed UNION SELECT link.from_session_id FROM compute_session_depends_on link
                 WHERE link.to_session_id IN (SELECT id FROM changed)
                 UNION SELECT cluster_id FROM compute_session WHERE id IN (SELECT id FROM changed) AND rank > 0
                 UNION SELECT next.id FROM compute_session member JOIN compute_session next USING (cluster_id)
                 WHERE member.id IN (SELECT id FROM changed) AND member.is_elastic
                 AND next.is_elastic AND 'PENDING' = next.status)
"""
_DELETE_OLD: Final = """
    DELETE FROM compute_change
    WHERE xid < %(before)s::xid8 AND at < clock_timestamp() - %(seconds)s * interval '1 second'
"""


class OwnWrite(NamedTuple):
    """Changes that a reader of the change log has made itself: its transaction, and when in that."""

    xid: int
    begun: datetime
    ended: datetime


class WaitingSession(NamedTuple):
    """A waiting session: its request, what else it waits for, and its wait status as written.

    In the state of one group, of a session that may start in several, it is the part of that group.
    """

    request: SessionRequest
    not_before: datetime | None
    has_dependencies_met: bool  # it waits for no other session
    refused_until: datetime | None
    is_in_several: bool  # it may start in other groups as well
    # Until then the groups that it prefers have not said yet that it cannot start there, or it pauses after failures.
    turn_at: datetime | None
    status: WaitStatus  # last: the rest is what a pass depends on

    def blocked_status(self, now: datetime) -> WaitStatus | None:
        """Return its wait status while a dependency, start time or refusal blocks it; None once it is in the queue."""
        if not self.has_dependencies_met:
            return WaitStatus(self.request.id, Reason.DEPENDENCY.value, "")
        if self.not_before is not None and self.not_before > now:
            return WaitStatus(self.request.id, Reason.START_TIME.value, "")
        if self.refused_until is not None and self.refused_until > now:
            return WaitStatus(self.request.id, Reason.PLACEMENT_REFUSED.value, "")
        if self.turn_at is not None and self.turn_at > now:
            return self.status
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class FullState:
    """Whole state: a snapshot, whose queue is the sessions that are not blocked, and all waiting sessions."""

    snapshot: Snapshot
    waiting: tuple[WaitingSession, ...]
    offered: OfferedTraits
    claims: Mapping[str, StoredClaim] = field(default_factory=dict)  # of waiting sessions, by id
    past: RunTimes = field(default_factory=RunTimes)
    calibrations: dict[int, Calibration] = field(default_factory=dict)  # by group
    since: str  # oldest transaction whose changes must be read next


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChanges:
    """Changed sessions, those that still wait or run, and the limits of owners and projects who wait."""

    ids: frozenset[str]
    waiting: Sequence[WaitingSession] = ()
    running: Sequence[RunningSession] = ()
    limits: Mapping[int, PolicyLimits] = field(default_factory=dict)
    project_limits: Mapping[int, PolicyLimits] = field(default_factory=dict)
    used: Used = field(default_factory=dict)
    claims: Mapping[str, StoredClaim] = field(default_factory=dict)  # of those that wait, by id
    since: str


def load(now: datetime, group_id: int | None = None) -> FullState:
    """Return the whole state, or that of a group; twenty queries, two more with a fair group, one with projects.

    Inactive groups offer no host. The state of a group has its hosts, those who wait for it, and all that runs:
    elsewhere it counts against limits alone.
    """
    since = oldest_open_transaction()
    traits = load_traits()
    running, waiting, claims = _running_and_waiting(None, traits.offered, group_id)
    queue = tuple(
        session.request
        for session in waiting
        if session.request.beside is None and session.blocked_status(now) is None and session.request.id not in claims
    )
    rules = rules_of(None)
    holds = [
        hold
        for session in waiting
        if (claim := claims.get(session.request.id)) is not None
        for hold in holds_of(session.request, claim, rules[claim.group_id])
    ]
    running += holds
    limits = limits_of({session.request.owner_id for session in waiting})
    held = usage_of(running)
    hosts, closed_groups = hosts_of(None if group_id is None else {group_id}, running, traits.of_host)
    is_fair = has_fair_group(rules)
    snapshot = Snapshot(
        hosts=hosts,
        queue=queue,
        owners={
            owner_id: LimitHolder(limits=its, used=held.get(owner_id, NOTHING)) for owner_id, its in limits.items()
        },
        projects=project_holders(projects_of(waiting), running),
        running=tuple(running),
        rules=rules,
        closed_groups=closed_groups,
        trait_names=trait_names(),
        image_hosts=traits.image_hosts,
        used=load_used() if is_fair else {},
        weights=load_weights() if is_fair else {},
        outlooks=load_outlooks(group_id),
    )
    return FullState(
        snapshot=snapshot,
        waiting=tuple(waiting),
        offered=traits.offered,
        claims=claims,
        past=load_past(),
        calibrations=load_calibrations(group_id),
        since=since,
    )


def load_changes(
    since: str,
    also_ids: Iterable[str],
    offered: OfferedTraits,
    *,
    own: Sequence[OwnWrite] = (),
    is_fair: bool = True,
    group_id: int | None = None,
) -> StateChanges | None:
    """Return what has changed since, and the sessions of `also_ids`; None where the whole state must be read.

    Of a group as `load`.

    `own` are what the reader has written itself: it is not read.
    `offered` is what the groups offered in the whole state: a change of these has everything read again.
    `is_fair`: whether a group has fair order, in which what ended sessions have used matters.
    Takes one query without changes, else three to eight. A concurrent commit is read now or the next time, possibly
    twice, but never missed.
    """
    with connection.cursor() as cursor:
        known = {name: [getattr(write, name) for write in own] for name in ("begun", "ended")}
        cursor.execute(
            _CHANGED, {"since": since, "also": list(also_ids), "xids": [str(write.xid) for write in own], **known}
        )
        next_since, is_all, changed = cursor.fetchone()
    if is_all:
        return None
    ids = frozenset(changed)
    if not ids:
        return StateChanges(ids=ids, since=next_since)
    running, waiting, claims = _running_and_waiting(ids, offered, group_id)
    return StateChanges(
        ids=ids,
        waiting=waiting,
        claims=claims,
        running=running,
        limits=limits_of({session.request.owner_id for session in waiting}) if waiting else {},
        project_limits=project_limits_of(projects_of(waiting)),
        used=used_by_owners_of(ids) if is_fair else {},
        since=next_since,
    )


def delete_old_changes(before: str) -> None:
    """Delete the change notes of transactions older than `before` that are too old for every reader."""
    with connection.cursor() as cursor:
        cursor.execute(_DELETE_OLD, {"before": before, "seconds": CHANGE_RETENTION_SECONDS})


def projects_of(waiting: Iterable[WaitingSession]) -> set[int]:
    """Return the ids of the projects of these sessions."""
    return {session.request.project_id for session in waiting if session.request.project_id is not None}


@contextmanager
def noted(own: list[OwnWrite]) -> Iterator[None]:
    """Append what is written meanwhile, in the caller's transaction, to `own`."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        begun = cursor.fetchone()[0]
        yield
        cursor.execute("SELECT pg_current_xact_id()::text, clock_timestamp()")
        xid, ended = cursor.fetchone()
    own.append(OwnWrite(int(xid), begun, ended))


def oldest_open_transaction() -> str:
    """Return the oldest open transaction: what older ones have written is visible, or never will be."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text")
        return str(cursor.fetchone()[0])


def _running_and_waiting(
    ids: Collection[str] | None, offered: OfferedTraits, group_id: int | None = None
) -> tuple[list[RunningSession], list[WaitingSession], dict[str, StoredClaim]]:
    """Return the running sessions, or those of `ids`, and as `_waiting` those that wait; nobody is among both.

    One that starts between the queries, by another process, is found by each of them: it runs.
    """
    waiting, claims = _waiting(ids, offered, group_id)
    running = running_sessions(ids)
    if started := {session.request.id for session in waiting}.intersection(each.session_id for each in running):
        waiting = [session for session in waiting if session.request.id not in started]
        claims = {name: claim for name, claim in claims.items() if name not in started}
    return running, waiting, claims


def _waiting(
    ids: Collection[str] | None, offered: OfferedTraits, group_id: int | None = None
) -> tuple[list[WaitingSession], dict[str, StoredClaim]]:
    """Return the waiting sessions, or those of `ids`, in the order of the queue, and their claims in the group by id.

    Takes two queries.
    """
    found = map(WaitingRow._make, fetch(waiting_rows, ids))
    rows = [row for row in found if row.waits_for(group_id) and row.is_whole]
    freed = dependencies(ids) if rows else {}
    if freed:
        rows = [row._replace(since=max(row.since, freed.get(row.id) or NO_DEPENDENCY)) for row in rows]
    rows.sort(key=attrgetter("since", "id"))  # by joining time, then id; faster here than in the database
    rows.sort(key=attrgetter("priority"), reverse=True)  # the sort is stable
    waiting = [
        WaitingSession(
            _request(row, offered, group_id),
            row.not_before,
            freed.get(row.id, NO_DEPENDENCY) is not None,
            row.refused_until,
            bool(row.group_choices),
            *_turn_and_status(row, group_id),
        )
        for row in rows
    ]
    claims = {
        row.id: StoredClaim.from_json(json.loads(row.claim), row.members) for row in rows if row.claim is not None
    }
    return waiting, {name: claim for name, claim in claims.items() if group_id in (None, claim.group_id)}


def _request(row: WaitingRow, offered: OfferedTraits, group_id: int | None) -> SessionRequest:
    """Return the request of a session in a group; for the whole state, with its alternatives in other groups."""
    gpu_memory, min_fgpu = max(row.gpu_memory, row.other_gpu_memory), max(row.min_fgpu, row.other_min_fgpu)
    fgpu, other_fgpu = (min(it, 1) if gpu_memory else it for it in (row.fgpu, row.other_fgpu))
    own, each = (row.cpu, row.memory, fgpu), (row.other_cpu, row.other_memory, other_fgpu)
    cpu, memory, fgpu = (first + (row.members - 1) * other for first, other in zip(own, each, strict=True))
    first, *others = row.groups() if group_id is None else (group_id,)
    request = SessionRequest(
        id=row.id,
        owner_id=row.owner_id,
        group_id=first,
        cpu=cpu,
        memory_bytes=memory,
        fgpu_milli=fgpu,
        members=row.members,
        shares_gpus=row.shares_gpus,
        mode="any" if row.pins else row.mode,
        pins=row.pins,
        main=None if row.members == 1 or each == own else own,
        member_ids=tuple(row.member_ids or ()),
        avoided_host_ids=tuple(row.avoided_hosts),
        traits=_traits(row, offered, first),
        priority=row.priority,
        queued_at=row.since,
        duration=row.duration,
        project_id=row.project_id,
        image_id=row.image_id,
        charge_percent=row.charge_percent,
        is_preemptible=row.is_preemptible,
        is_alternative=first != row.groups()[0],
        core_milli=offered.core_milli.get(first, CORE_MILLI),
        stem=stem_of(row.name),
        beside=None if row.beside_hosts is None else Beside(tuple(row.beside_hosts), tuple(row.beside_gpus or ())),
    )
    if others:
        request = in_groups(request, {other: _traits(row, offered, other) for other in others}, offered.core_milli)
    if not gpu_memory:
        return request
    groups = {entry.group_id for entry in entries_of([request])}
    return by_gpu_memory(request, {it: gpu_choices(it, offered, gpu_memory, min_fgpu) for it in groups})


def _turn_and_status(row: WaitingRow, group_id: int | None) -> tuple[datetime | None, WaitStatus]:
    """Return when it is this group's turn, if not at once, and the wait status as this group has written it.

    After starts that failed the turn comes later.
    """
    retry_at = host_faults.retry_at(row.id, max(row.start_failures, row.restarts), row.status_at)
    if not row.group_choices or group_id is None:
        return retry_at, WaitStatus(row.id, row.reason, row.detail, row.eta, row.eta_reason)
    stored = group_waits.read(row.group_waits)
    preferred = row.group_choices[: row.group_choices.index(group_id)]
    is_turn = all(str(each) in stored and stored[str(each)].reason not in group_waits.NOT_TRIED for each in preferred)
    status = stored.get(str(group_id), group_waits.NOTHING_WRITTEN)
    turn_at = None if is_turn else row.since + TURN_PATIENCE
    return max(filter(None, (turn_at, retry_at)), default=None), WaitStatus(row.id, *status)


def _traits(row: WaitingRow, offered: OfferedTraits, group_id: int) -> Traits:
    """Return the traits that the host must have in a group."""
    cpu, memory, fgpu = row.cpu, row.memory, row.fgpu
    if row.members > 1:
        cpu, memory, fgpu = map(max, (cpu, memory, fgpu), (row.other_cpu, row.other_memory, row.other_fgpu))
    return needed_traits(
        group_id,
        offered,
        shape=Shape(cpu, memory, fgpu),
        required_roots=row.required_roots,
        wanted_roots=row.wanted_roots,
        image_id=row.image_id,
        architecture=row.architecture,
        is_local=row.is_local,
        gpu_model=row.gpu_model,
        min_gpu_memory=0 if row.gpu_memory or row.other_gpu_memory else row.min_gpu_memory,
        parked_on=None if row.pins else row.parked_on,
        in_cluster=row.is_member,
    )
