"""Reads the state that a pass decides on, in full or what has changed, in a constant number of queries."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any, Final, NamedTuple

from django.db import connection
from django.db.models import (
    Count,
    F,
    Max,
    Q,
    QuerySet,
    TextField,
)
from django.db.models.functions import Cast, Greatest

from accounts.limits import PolicyLimits
from scheduler.claims import hold_of
from scheduler.cluster_snapshot import hosts_of, rules_of, running_sessions
from scheduler.compiled_queries import fetch
from scheduler.core.types import (
    EPOCH,
    LimitHolder,
    RunningSession,
    SessionRequest,
    Shape,
    Snapshot,
    Traits,
)
from scheduler.fair_use import Used, has_fair_group, load_used, load_weights, used_by_owners_of
from scheduler.host_traits import OfferedTraits, load_traits, needed_traits, trait_names
from scheduler.limit_holders import NOTHING, limits_of, project_holders, project_limits_of, usage_of
from sessions.lifecycle import Reason, Status
from sessions.models import (
    Session,
    SessionQuerySet,
    WaitStatus,
    group_waits,
    has_succeeded,
    time_bound,
)
from sessions.preemption import StoredClaim

NO_DEPENDENCY: Final = EPOCH  # in place of the time of the last success, for sessions without dependencies
NOTHING_MORE: Final = (False, (), False)  # the last three fields of a request, which other code sets
TURN_PATIENCE: Final = timedelta(seconds=10)  # for the pass over a group that a session prefers
CHANGE_RETENTION_SECONDS: Final = 300  # longer than the interval at which every reader reads everything again
WaitingRow = tuple[Any, ...]
_CHANGED: Final = """
    WITH changed AS (
        SELECT unnest(sessions) AS id FROM compute_change WHERE xid >= %(since)s::xid8
        UNION SELECT unnest(%(also)s::varchar[])
    )
    SELECT pg_snapshot_xmin(pg_current_snapshot())::text,
           EXISTS (SELECT FROM compute_change WHERE xid >= %(since)s::xid8 AND sessions IS NULL),
           ARRAY(SELECT id FROM changed UNION SELECT link.from_session_id FROM compute_session_depends_on link
                 WHERE link.to_session_id IN (SELECT id FROM changed))
"""
_DELETE_OLD: Final = """
    DELETE FROM compute_change
    WHERE xid < %(before)s::xid8 AND at < clock_timestamp() - %(seconds)s * interval '1 second'
"""


class WaitingSession(NamedTuple):
    """A waiting session: its request, what else it waits for, and its wait status as written.

    In the state of one group, of a session that may start in several, it is the part of that group.
    """

    request: SessionRequest
    not_before: datetime | None
    has_dependencies_met: bool  # all sessions that it depends on have succeeded
    refused_until: datetime | None
    is_in_several: bool  # it may start in other groups as well
    turn_at: datetime | None  # until then the groups that it prefers have not said yet that it cannot start there
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
    """Return the whole state, or that of a group; sixteen queries, two more with a fair group, one with projects.

    Inactive groups offer no host. The state of a group has its hosts, those who wait for it, and all that runs:
    elsewhere it counts against limits alone.
    """
    since = oldest_open_transaction()
    traits = load_traits()
    waiting, claims = _with_preemption(_waiting(None, traits.offered, group_id), None, group_id)
    queue = tuple(
        session.request
        for session in waiting
        if session.blocked_status(now) is None and session.request.id not in claims
    )
    claimants = [session.request for session in waiting if session.request.id in claims]
    running = running_sessions(None) + [hold_of(request, claims[request.id]) for request in claimants]
    limits = limits_of({session.request.owner_id for session in waiting})
    held = usage_of(running)
    hosts, closed_groups = hosts_of(None if group_id is None else {group_id}, running, traits.of_host)
    rules = rules_of(None)
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
    )
    return FullState(snapshot=snapshot, waiting=tuple(waiting), offered=traits.offered, claims=claims, since=since)


def load_changes(
    since: str,
    also_ids: Iterable[str],
    offered: OfferedTraits,
    *,
    is_fair: bool = True,
    group_id: int | None = None,
) -> StateChanges | None:
    """Return what has changed since, and the sessions of `also_ids`; None where the whole state must be read.

    Of a group as `load`.

    `offered` is what the groups offered in the whole state: a change of these has everything read again.
    `is_fair`: whether a group has fair order, in which what ended sessions have used matters.
    Takes one query without changes, else three to eight. A concurrent commit is read now or the next time, possibly
    twice, but never missed.
    """
    with connection.cursor() as cursor:
        cursor.execute(_CHANGED, {"since": since, "also": list(also_ids)})
        next_since, is_all, changed = cursor.fetchone()
    if is_all:
        return None
    ids = frozenset(changed)
    if not ids:
        return StateChanges(ids=ids, since=next_since)
    waiting, claims = _with_preemption(_waiting(ids, offered, group_id), ids, group_id)
    return StateChanges(
        ids=ids,
        waiting=waiting,
        claims=claims,
        running=running_sessions(ids),
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


def oldest_open_transaction() -> str:
    """Return the oldest open transaction: what older ones have written is visible, or never will be."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text")
        return str(cursor.fetchone()[0])


def _waiting(ids: Collection[str] | None, offered: OfferedTraits, group_id: int | None = None) -> list[WaitingSession]:
    """Return the waiting sessions, or those of `ids`, in the order of the queue; takes two queries."""
    rows = [row for row in fetch(_waiting_rows, ids) if group_id in (None, row[2]) or group_id in row[19]]
    freed = _dependencies(ids) if rows else {}
    if freed:
        rows = [_since_freed(row, freed) for row in rows]
    rows.sort(key=itemgetter(9, 0))  # by joining time, then id; faster here than in the database
    rows.sort(key=itemgetter(8), reverse=True)  # by priority; the sort is stable
    return [
        WaitingSession(
            _request(row, offered, group_id),
            row[14],
            freed.get(row[0], NO_DEPENDENCY) is not None,
            row[18],
            bool(row[19]),
            *_turn_and_status(row, group_id),
        )
        for row in rows
        if not row[19] or group_id is None or group_id in row[19]
    ]


def _with_preemption(
    waiting: list[WaitingSession], ids: Collection[str] | None, group_id: int | None
) -> tuple[list[WaitingSession], dict[str, StoredClaim]]:
    """Return the waiting sessions with what is preemptible marked, and their claims in the group; takes one query."""
    rows = {row[0]: row for row in (fetch(_preemption_rows, ids) if waiting else ())}
    claims = {name: StoredClaim.from_json(json.loads(claim)) for name, _, claim in rows.values() if claim}
    marked = [
        session._replace(request=session.request._replace(is_preemptible=True))
        if session.request.id in rows and rows[session.request.id][1]
        else session
        for session in waiting
    ]
    return marked, {name: claim for name, claim in claims.items() if group_id in (None, claim.group_id)}


def _preemption_rows(sessions: SessionQuerySet) -> QuerySet[Session, tuple[str, bool, Any]]:
    """Return the rows behind `_with_preemption`: of those that are preemptible, or for which others end."""
    concerned = sessions.filter(Q(is_preemptible=True) | Q(claim__isnull=False), status=Status.PENDING)
    return concerned.values_list("pk", "is_preemptible", "claim")


def _request(row: WaitingRow, offered: OfferedTraits, group_id: int | None) -> SessionRequest:
    """Return the request of a session in a group; for the whole state, with its alternatives in other groups."""
    choices = row[19] or row[2:3] if group_id is None else (group_id,)
    requests = [
        SessionRequest._make(
            (*row[:2], each, *row[3:6], tuple(row[6]), _traits(row, offered, each), *row[8:14], *NOTHING_MORE)
        )
        for each in choices
    ]
    if len(requests) == 1:
        is_alternative = bool(row[19]) and requests[0].group_id != row[19][0]
        return requests[0]._replace(is_alternative=True) if is_alternative else requests[0]
    return requests[0]._replace(alternatives=tuple(other._replace(is_alternative=True) for other in requests[1:]))


def _turn_and_status(row: WaitingRow, group_id: int | None) -> tuple[datetime | None, WaitStatus]:
    """Return when it is this group's turn, if not at once, and the wait status as this group has written it."""
    if not row[19] or group_id is None:
        return None, WaitStatus._make(row[24:])
    told = group_waits.read(row[22])
    preferred = row[19][: row[19].index(group_id)]
    is_turn = all(str(each) in told and told[str(each)].reason not in group_waits.NOT_TRIED for each in preferred)
    status = told.get(str(group_id), group_waits.NOTHING_WRITTEN)
    return None if is_turn else row[9] + TURN_PATIENCE, WaitStatus(row[0], *status)


def _since_freed(row: WaitingRow, freed: Mapping[str, datetime | None]) -> WaitingRow:
    """Return the row with the time since which it waits for capacity alone."""
    return (*row[:9], max(row[9], freed.get(row[0]) or NO_DEPENDENCY), *row[10:])


def _traits(row: WaitingRow, offered: OfferedTraits, group_id: int) -> Traits:
    """Return the traits that the host must have in a group."""
    return needed_traits(
        group_id,
        offered,
        shape=Shape(*row[3:6]),
        required_roots=row[7],
        wanted_roots=row[15],
        image_id=row[12],
        architecture=row[16],
        is_local=row[17],
        gpu_model=row[20],
        min_gpu_memory=row[21],
        parked_on=row[23],
    )


def _waiting_rows(sessions: SessionQuerySet) -> QuerySet[Session, WaitingRow]:
    """Return the rows behind `_waiting`."""
    return sessions.filter(status=Status.PENDING).values_list(
        *("id", "owner_id", "resource_group_id", "cpu", "memory", "fgpu", "avoided_hosts"),
        *("required_roots", "priority"),
        Greatest("created_at", "not_before"),  # since when it waits for capacity, dependencies aside
        time_bound(),
        "project_id",
        *("image_id", "charge_percent", "not_before", "wanted_roots", "image__architecture", "image__is_local"),
        *("refused_until", "group_choices", "gpu_model", "min_gpu_memory", Cast("group_waits", TextField())),
        "parked_on__name",
        F("id"),
        *("reason", "detail", "eta", "eta_reason"),
    )


def _dependencies(ids: Collection[str] | None) -> dict[str, datetime | None]:
    """Return {session id: time of the last success of its dependencies, None unless all have succeeded}."""
    return {session_id: last if done == of else None for session_id, done, of, last in fetch(_dependency_rows, ids)}


def _dependency_rows(sessions: SessionQuerySet) -> QuerySet[Session, tuple[str, int, int, datetime | None]]:
    """Return the rows behind `_dependencies`."""
    return (
        sessions.filter(status=Status.PENDING, depends_on__isnull=False)
        .values_list("pk")
        .annotate(
            done=Count("depends_on", filter=has_succeeded("depends_on__")),
            of=Count("depends_on"),
            last=Max("depends_on__ended_at"),
        )
    )
