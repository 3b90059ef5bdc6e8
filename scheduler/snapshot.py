"""Reads what a pass decides on, in a constant number of queries."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar, cast

from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import Case, Count, F, Max, QuerySet, When
from django.db.models.functions import Greatest, Least
from psycopg.types.datetime import TimestamptzLoader

from accounts.limits import Amounts
from accounts.models import User
from resources.models import Gpu, Host, HostStatus, ResourceGroup
from scheduler.terms import EPOCH, GpuView, HostView, Order, Owner, Request, Rules, Running, Snapshot, Where
from sessions.lifecycle import HOSTED, Reason, Status
from sessions.models import GpuShare, Session, Told, has_succeeded
from sessions.usage import usage_by_owner

Row = TypeVar("Row")
NEVER: Final = EPOCH  # when the last dependency of a session without any succeeded
STOPPING: Final = timedelta(minutes=1)  # after this long a session that is being stopped is thought to be gone


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The snapshot, who waits for something else than room, and what all who wait have been told so far."""

    snapshot: Snapshot
    held: tuple[Told, ...] = ()  # not in the queue yet
    told: Mapping[str, Told] = field(default_factory=dict)
    owner_of: Mapping[str, int] = field(default_factory=dict)


def load(now: datetime, *, behind: Iterable[Request] = (), group_ids: Iterable[int] = ()) -> Loaded:
    """Return the waiting sessions and the hosts that may take them, in nine queries; inactive groups offer no host.

    Those in `behind` are put at the end of the queue, and the hosts of `group_ids` are read too.
    """
    rows = _fetch(
        Session.objects.filter(status=Status.PENDING)
        .order_by()
        .values_list(
            *("id", "owner_id", "resource_group_id", "cpu", "memory", "fgpu", "avoided_host_id", "priority"),
            Greatest("created_at", "not_before"),  # since when it waits for room, dependencies aside
            Least("time_limit", "owner__policy__max_lifetime"),
            *("not_before", "reason", "detail", "eta", "because"),
        )
    )
    rows.sort(key=lambda row: (-row[7], row[8], row[0]))  # quicker here than in the database, as is the next one
    freed = _dependencies() if rows else {}
    queue: list[Request] = []
    held: list[Told] = []
    for row in rows:
        succeeded_at = freed.get(row[0], NEVER)
        if succeeded_at is None:
            held.append(Told(row[0], Reason.DEPENDENCY.value, ""))
        elif row[10] is not None and row[10] > now:
            held.append(Told(row[0], Reason.START_TIME.value, ""))
        else:
            queued_at = max(row[8], succeeded_at)
            queue.append(Request._make((*row[:8], queued_at, row[9], None)))
    return Loaded(
        snapshot=_read((*queue, *behind), group_ids),
        held=tuple(held),
        told={row[0]: Told(row[0], *row[11:]) for row in rows},
        owner_of={row[0]: row[1] for row in rows},
    )


def _read(queue: tuple[Request, ...], group_ids: Iterable[int]) -> Snapshot:
    groups = {request.group_id for request in queue}.union(group_ids)
    used = usage_by_owner() if groups else {}
    owners = User.objects.filter(pk__in={request.owner_id for request in queue}).select_related("policy")
    running = _running(groups)
    return Snapshot(
        hosts=hosts_of(groups, running),
        queue=queue,
        owners={user.pk: Owner(limits=user.policy.limits(), used=used.get(user.pk, Amounts())) for user in owners},
        running=tuple(running),
        rules=rules_of(groups),
    )


def _fetch(rows: QuerySet[Any, Row]) -> list[Row]:
    """Return the rows of a values_list, times read by the driver's own loader: Django's takes ten times as long."""
    try:
        sql, parameters = rows.query.sql_with_params()
    except EmptyResultSet:
        return []
    with connection.cursor() as cursor:
        cursor.cursor.adapters.register_loader("timestamptz", TimestamptzLoader)
        cursor.execute(sql, parameters)
        return cast(list[Row], cursor.fetchall())


def _dependencies() -> dict[str, datetime | None]:
    """Return {waiting session that depends on others: when the last of them succeeded, None while one has not}."""
    links = Session.depends_on.through.objects.filter(from_session__status=Status.PENDING)
    rows = links.values_list("from_session_id").annotate(
        done=Count("pk", filter=has_succeeded("to_session__")), of=Count("pk"), last=Max("to_session__ended_at")
    )
    return {session_id: last if done == of else None for session_id, done, of, last in rows}


def rules_of(group_ids: set[int]) -> dict[int, Rules]:
    """Return how these groups are scheduled; one query."""
    return {
        group.pk: Rules(
            where=Where(group.placement),
            order=Order(group.queue_order),
            ageing=group.ageing,
            hold_after=group.hold_after,
        )
        for group in ResourceGroup.objects.filter(pk__in=group_ids)
    }


def _running(group_ids: set[int]) -> list[Running]:
    """Return who holds leases in these groups, with the time by which each has ended."""
    shares: dict[str, list[tuple[int, int]]] = {}
    held = GpuShare.objects.filter(lease__host__group__in=group_ids).order_by()
    for session_id, gpu_id, milli in _fetch(held.values_list("lease_id", "gpu_id", "milli")):
        shares.setdefault(session_id, []).append((gpu_id, milli))
    return [
        Running(session_id, owner_id, host_id, cpu, memory, tuple(shares.get(session_id, ())), begun, ends_at)
        for session_id, owner_id, host_id, cpu, memory, begun, ends_at in sorted(_fetch(_hosted(group_ids)))
    ]


def _hosted(group_ids: set[int]) -> QuerySet[Session, tuple[str, int, int, int, int, datetime, datetime | None]]:
    """Return the rows behind `_running`. What is being stopped ends soon; what has not started yet, a limit later."""
    begun = Case(When(started_at__isnull=False, then=F("started_at")), default=F("status_at"))
    bound = Least("time_limit", "owner__policy__max_lifetime")
    ends_at = Case(When(status=Status.TERMINATING, then=F("status_at") + STOPPING), default=F("begun") + bound)
    hosted = Session.objects.filter(status__in=HOSTED, host__group__in=group_ids).order_by()
    return hosted.annotate(begun=begun, ends_at=ends_at).values_list(
        "pk", "owner_id", "host_id", "cpu", "memory", "begun", "ends_at"
    )


def hosts_of(group_ids: set[int], running: Iterable[Running] = ()) -> tuple[HostView, ...]:
    """Return the hosts of these groups that may take sessions, with what `running` leaves of them; two queries."""
    cpu_held: dict[int, int] = {}
    memory_held: dict[int, int] = {}
    milli_held: dict[int, int] = {}
    for one in running:
        cpu_held[one.host_id] = cpu_held.get(one.host_id, 0) + one.cpu
        memory_held[one.host_id] = memory_held.get(one.host_id, 0) + one.memory
        for gpu_id, milli in one.shares:
            milli_held[gpu_id] = milli_held.get(gpu_id, 0) + milli
    gpus: dict[int, list[GpuView]] = {}
    present = Gpu.objects.filter(is_present=True, host__group__in=group_ids).order_by("host", "index")
    for pk, host_id, per_gpu in _fetch(present.values_list("pk", "host_id", "host__group__fgpu_per_gpu")):
        capacity = per_gpu * 1000
        gpus.setdefault(host_id, []).append(GpuView(pk, capacity, capacity - milli_held.get(pk, 0)))
    hosts = Host.objects.filter(group__in=group_ids, group__is_active=True, status=HostStatus.READY, is_cordoned=False)
    return tuple(
        HostView(
            id=pk,
            name=name,
            group_id=group_id,
            cpu=cpu,
            memory=memory,
            cpu_free=cpu - cpu_held.get(pk, 0),
            memory_free=memory - memory_held.get(pk, 0),
            gpus=tuple(gpus.get(pk, ())),
        )
        for pk, name, group_id, cpu, memory in hosts.order_by("name").values_list(
            "pk", "name", "group_id", "cpu", "memory"
        )
    )
