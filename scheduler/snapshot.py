"""Reads what a pass decides on, all of it or what has changed, in a constant number of queries."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeVar

from django.db import connection
from django.db.models import Case, Count, F, IntegerField, Max, QuerySet, Value, When
from django.db.models.expressions import RawSQL
from django.db.models.functions import Greatest, Least
from psycopg.types.datetime import TimestamptzLoader

from accounts.limits import Amounts, PolicyLimits
from accounts.models import User
from resources.models import Gpu, Host, HostStatus, ResourceGroup
from resources.tiers import Tier
from scheduler.core.types import (
    EPOCH,
    GpuView,
    HostView,
    LimitHolder,
    PlacementPolicyName,
    QueueOrder,
    Rules,
    RunningSession,
    SessionRequest,
    Shares,
    Snapshot,
)
from sessions.lifecycle import HOSTED, Reason, Status
from sessions.models import Session, SessionQuerySet, WaitStatus, has_succeeded

Row = TypeVar("Row")
NEVER: Final = EPOCH  # when the last dependency of a session without any succeeded
NOTHING: Final = Amounts()
CHANGE_RETENTION_SECONDS: Final = 300  # seconds: longer than anybody goes on without reading everything again
HostedRow = tuple[str, int, int, int, int, datetime, datetime | None, int | None, int | None]
WaitingRow = tuple[Any, ...]
RowsOf = Callable[[SessionQuerySet], QuerySet[Any, Row]]
_IDS: Final = object()  # in a compiled query, in place of the ids
STOPPING: Final = timedelta(minutes=1)  # after this long a session that is being stopped is thought to be gone

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
_FORGET: Final = """
    DELETE FROM compute_change
    WHERE xid < %(before)s::xid8 AND at < clock_timestamp() - %(seconds)s * interval '1 second'
"""


class WaitingSession(NamedTuple):
    """A waiting session: what it asks for, what it waits for beside room, and what its owner has been told so far."""

    request: SessionRequest
    not_before: datetime | None
    is_free: bool  # all that it depends on have succeeded
    status: WaitStatus

    def blocked_status(self, now: datetime) -> WaitStatus | None:
        """Return what to tell its owner while it is not in the queue; None once it is."""
        if not self.is_free:
            return WaitStatus(self.request.id, Reason.DEPENDENCY.value, "")
        if self.not_before is not None and self.not_before > now:
            return WaitStatus(self.request.id, Reason.START_TIME.value, "")
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class FullState:
    """The whole state: the snapshot, whose queue are those who wait for nothing but room, and all who wait."""

    snapshot: Snapshot
    waiting: tuple[WaitingSession, ...]
    since: str  # from where to read what has changed


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChanges:
    """What has changed: the sessions, as far as they wait or run still, and limits of users who wait among them."""

    ids: frozenset[str]
    waiting: Sequence[WaitingSession] = ()
    running: Sequence[RunningSession] = ()
    limits: Mapping[int, PolicyLimits] = field(default_factory=dict)
    since: str


def load(now: datetime) -> FullState:
    """Return the whole state, in eight queries; inactive groups offer no host."""
    since = oldest_open()
    waiting = _waiting(None)
    queue = tuple(session.request for session in waiting if session.blocked_status(now) is None)
    running = _running(None)
    limits = limits_of({session.request.owner_id for session in waiting})
    held = usage_of(running)
    hosts, closed_groups = hosts_of(None, running)
    snapshot = Snapshot(
        hosts=hosts,
        queue=queue,
        owners={
            owner_id: LimitHolder(limits=its, used=held.get(owner_id, NOTHING)) for owner_id, its in limits.items()
        },
        running=tuple(running),
        rules=rules_of(None),
        closed_groups=closed_groups,
    )
    return FullState(snapshot=snapshot, waiting=tuple(waiting), since=since)


def load_changes(since: str, also: Iterable[str]) -> StateChanges | None:
    """Return what has changed, and the sessions of `also`; None where the whole state must be read.

    One query if nothing has, else three to five. What commits meanwhile is read now or the next time, or both; never
    not at all.
    """
    with connection.cursor() as cursor:
        cursor.execute(_CHANGED, {"since": since, "also": list(also)})
        next_since, is_all, changed = cursor.fetchone()
    if is_all:
        return None
    ids = frozenset(changed)
    if not ids:
        return StateChanges(ids=ids, since=next_since)
    waiting = _waiting(ids)
    return StateChanges(
        ids=ids,
        waiting=waiting,
        running=_running(ids),
        limits=limits_of({session.request.owner_id for session in waiting}) if waiting else {},
        since=next_since,
    )


def forget_changes(before: str) -> None:
    """Remove the notes of changes from before the moment that are too old for every reader."""
    with connection.cursor() as cursor:
        cursor.execute(_FORGET, {"before": before, "seconds": CHANGE_RETENTION_SECONDS})


def limits_of(owner_ids: Collection[int]) -> dict[int, PolicyLimits]:
    """Return what these users may hold at once; one query."""
    return {user.pk: user.policy.limits() for user in User.objects.filter(pk__in=owner_ids).select_related("policy")}


def usage_of(running: Iterable[RunningSession]) -> dict[int, Amounts]:
    """Return {user id: what their sessions among `running` hold}."""
    held: dict[int, list[int]] = {}
    for one in running:
        sums = held.setdefault(one.owner_id, [0, 0, 0, 0])
        sums[0] += one.cpu
        sums[1] += one.memory
        for _, milli in one.shares:
            sums[2] += milli
        sums[3] += 1
    return {
        owner_id: Amounts(cpu=sums[0], memory=sums[1], fgpu=sums[2], sessions=sums[3])
        for owner_id, sums in held.items()
    }


def oldest_open() -> str:
    """Return the oldest transaction that is still open: what older ones have written is committed, or never will be."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text")
        return str(cursor.fetchone()[0])


def _waiting(ids: Collection[str] | None) -> list[WaitingSession]:
    """Return who waits, or who of `ids` does, in the order of the queue; two queries."""
    rows = _fetch(_waiting_rows, ids)
    freed = _dependencies(ids) if rows else {}
    if freed:
        rows = [_since_freed(row, freed) for row in rows]
    rows.sort(key=itemgetter(8, 0))  # since when, and the id; quicker here than in the database
    rows.sort(key=itemgetter(7), reverse=True)  # priority; those of the same stay as they are
    return [
        WaitingSession(
            SessionRequest._make(row[:11]), row[11], freed.get(row[0], NEVER) is not None, WaitStatus._make(row[12:])
        )
        for row in rows
    ]


def _since_freed(row: WaitingRow, freed: Mapping[str, datetime | None]) -> WaitingRow:
    """Return the row with the time since which nothing but room is waited for."""
    return (*row[:8], max(row[8], freed.get(row[0]) or NEVER), *row[9:])


def _waiting_rows(sessions: SessionQuerySet) -> QuerySet[Session, WaitingRow]:
    """Return the rows behind `_waiting`."""
    return sessions.filter(status=Status.PENDING).values_list(
        *("id", "owner_id", "resource_group_id", "cpu", "memory", "fgpu", "avoided_host_id", "priority"),
        Greatest("created_at", "not_before"),  # since when it waits for room, dependencies aside
        Least("time_limit", "owner__policy__max_lifetime"),
        Value(None, output_field=IntegerField()),  # no project
        "not_before",
        F("id"),
        *("reason", "detail", "eta", "eta_reason"),
    )


def _fetch(rows_of: "RowsOf[Row]", ids: Collection[str] | None) -> list[Row]:
    """Return the rows of all sessions, or of those of `ids`."""
    sql, parameters = _compiled(rows_of, of_some=ids is not None)
    return _execute(sql, [list(ids or ()) if parameter is _IDS else parameter for parameter in parameters])


@cache
def _compiled(
    rows_of: Callable[[SessionQuerySet], QuerySet[Any, Any]], *, of_some: bool
) -> tuple[str, Sequence[object]]:
    """Return the query; Django takes longer to write one than PostgreSQL to answer it."""
    sessions = Session.objects.order_by()
    if of_some:
        sessions = sessions.filter(pk__in=RawSQL("SELECT unnest(%s::varchar[])", [_IDS]))
    return rows_of(sessions).query.sql_with_params()


def _execute(sql: str, parameters: Sequence[Any]) -> list[Any]:
    """Return the rows, times read by the driver's own loader: Django's takes ten times as long."""
    with connection.cursor() as cursor:
        cursor.cursor.adapters.register_loader("timestamptz", TimestamptzLoader)
        cursor.execute(sql, parameters)
        return list(cursor.fetchall())


def _dependencies(ids: Collection[str] | None) -> dict[str, datetime | None]:
    """Return {waiting session that depends on others: when the last of them succeeded, None while one has not}."""
    return {session_id: last if done == of else None for session_id, done, of, last in _fetch(_dependency_rows, ids)}


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


def rules_of(group_ids: set[int] | None) -> dict[int, Rules]:
    """Return how these groups, or all, are scheduled; one query."""
    groups = ResourceGroup.objects.all() if group_ids is None else ResourceGroup.objects.filter(pk__in=group_ids)
    return {
        group.pk: Rules(
            placement_policy=PlacementPolicyName(group.placement),
            queue_order=QueueOrder(group.queue_order),
            ageing=group.ageing,
            reservation_delay=group.reservation_delay,
        )
        for group in groups
    }


def _running(ids: Collection[str] | None) -> list[RunningSession]:
    """Return who holds a lease, or who of `ids` does, with the time by which each has ended; one query."""
    shares: dict[str, Shares] = {}
    limits_of: dict[str, HostedRow] = {}
    for row in _fetch(_hosted_rows, ids):
        session_id = row[0]
        limits_of[session_id] = row
        if row[7] is not None and row[8] is not None:
            shares[session_id] = (*shares.get(session_id, ()), (row[7], row[8]))
    return [RunningSession(*row[:5], shares.get(session_id, ()), *row[5:7]) for session_id, row in limits_of.items()]


def _hosted_rows(sessions: SessionQuerySet) -> QuerySet[Session, HostedRow]:
    """Return the rows behind `_running`, one for each share.

    What is being stopped ends soon; what has not started yet, a limit later.
    """
    begun = Case(When(started_at__isnull=False, then=F("started_at")), default=F("status_at"))
    bound = Least("time_limit", "owner__policy__max_lifetime")
    ends_at = Case(When(status=Status.TERMINATING, then=F("status_at") + STOPPING), default=F("begun") + bound)
    hosted = sessions.filter(status__in=HOSTED).annotate(begun=begun, ends_at=ends_at)
    return hosted.values_list(
        *("pk", "owner_id", "host_id", "cpu", "memory", "begun", "ends_at"),
        *("lease__shares__gpu_id", "lease__shares__milli"),
    )


def hosts_of(
    group_ids: set[int] | None, running: Iterable[RunningSession] = ()
) -> tuple[tuple[HostView, ...], frozenset[int]]:
    """Return the hosts of these groups, or of all, that may take sessions, with what `running` leaves; two queries.

    And the groups that have ready hosts which are closed for new sessions.
    """
    cpu_held: dict[int, int] = {}
    memory_held: dict[int, int] = {}
    milli_held: dict[int, int] = {}
    for one in running:
        cpu_held[one.host_id] = cpu_held.get(one.host_id, 0) + one.cpu
        memory_held[one.host_id] = memory_held.get(one.host_id, 0) + one.memory
        for gpu_id, milli in one.shares:
            milli_held[gpu_id] = milli_held.get(gpu_id, 0) + milli
    gpus: dict[int, list[GpuView]] = {}
    present = Gpu.objects.filter(is_present=True).order_by("host", "index")
    hosts = Host.objects.filter(group__is_active=True, status=HostStatus.READY)
    if group_ids is not None:
        present, hosts = present.filter(host__group__in=group_ids), hosts.filter(group__in=group_ids)
    undivided: set[int] = set()
    for pk, host_id, per_gpu, tier in present.values_list("pk", "host_id", "host__group__fgpu_per_gpu", "tier"):
        capacity = per_gpu * 1000
        if tier == Tier.NONE:  # it is the host that cannot: the same for all its devices
            undivided.add(host_id)
        gpus.setdefault(host_id, []).append(GpuView(pk, capacity, capacity - milli_held.get(pk, 0)))
    rows = list(hosts.order_by("name").values_list("pk", "name", "group_id", "cpu", "memory", "is_cordoned"))
    views = tuple(
        HostView(
            id=pk,
            name=name,
            group_id=group_id,
            cpu=cpu,
            memory=memory,
            cpu_free=cpu - cpu_held.get(pk, 0),
            memory_free=memory - memory_held.get(pk, 0),
            gpus=tuple(gpus.get(pk, ())),
            divides=pk not in undivided,
        )
        for pk, name, group_id, cpu, memory, is_cordoned in rows
        if not is_cordoned
    )
    return views, frozenset(group_id for _, _, group_id, _, _, is_cordoned in rows if is_cordoned)
