"""The rows of the sessions that wait, and of what they depend on, as the database has them."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.contrib.postgres.aggregates import BoolAnd
from django.contrib.postgres.expressions import ArraySubquery
from django.contrib.postgres.fields import ArrayField
from django.db.models import (
    Case,
    CharField,
    Exists,
    F,
    Max,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    TextField,
    Value,
    When,
)
from django.db.models.functions import Cast, Coalesce, Greatest

from scheduler.core.types import ClusterMode
from scheduler.snapshot.compiled_queries import fetch
from sessions.lifecycle import Status
from sessions.models import GpuShare, Lease, Session, SessionQuerySet, is_met, met_at, time_bound


class WaitingRow(NamedTuple):
    """A row of a waiting session, by whose fields the query asks for columns."""

    id: str
    name: str
    owner_id: int
    group_id: int
    cpu: int
    memory: int
    fgpu: int
    avoided_hosts: list[int]
    required_roots: list[int]
    wanted_roots: list[int]
    priority: int
    since: datetime  # since when it waits for capacity, dependencies aside
    duration: timedelta | None
    project_id: int | None
    image_id: int
    architecture: str
    is_local: bool
    charge_percent: int
    is_preemptible: bool
    not_before: datetime | None
    refused_until: datetime | None
    group_choices: list[int]  # the preferred first; empty where it waits for one group
    gpu_model: str
    min_gpu_memory: int
    gpu_memory: int
    min_fgpu: int
    parked_on: str | None  # name of the host
    claim: str | None  # JSON
    group_waits: str  # JSON
    reason: str
    detail: str
    eta: datetime | None
    eta_reason: str
    start_failures: int
    status_at: datetime
    members: int  # of the cluster whose first member it is; 1: no cluster
    shares_gpus: bool
    mode: ClusterMode
    restarts: int
    member_ids: list[str] | None  # of a cluster, by rank, of those that wait; before what is left is settled: empty
    parked_hosts: list[int] | None  # ids, by rank of these members; of what was not parked, or in no cluster: none
    other_cpu: int  # of each member but the first
    other_memory: int
    other_fgpu: int
    other_gpu_memory: int
    other_min_fgpu: int
    beside_hosts: list[int] | None  # of an elastic member: where the others of its cluster are
    beside_gpus: list[int] | None

    def groups(self) -> Sequence[int]:
        """Return the ids of the groups that it waits for, the preferred first."""
        return self.group_choices or (self.group_id,)

    @property
    def is_whole(self) -> bool:
        """False for a cluster of which a member does not wait, or not yet."""
        return self.member_ids is None or len(self.member_ids) == self.members

    @property
    def is_member(self) -> bool:
        """Whether it is in a cluster."""
        return self.member_ids is not None or self.beside_hosts is not None

    @property
    def pins(self) -> tuple[int, ...]:
        """Where each member has its files, if on several hosts."""
        return tuple(self.parked_hosts or ()) if len({*(self.parked_hosts or ())}) > 1 else ()

    def waits_for(self, group_id: int | None) -> bool:
        """Return whether it waits for a group; None is any."""
        return group_id is None or group_id in self.groups()


def waiting_rows(sessions: SessionQuerySet) -> QuerySet[Session, tuple[Any, ...]]:
    """Return the rows of the sessions that wait, whose columns are the fields of `WaitingRow`.

    A cluster has one, that of its first member; while it runs, of the next of its elastic ones.
    """
    others = Session.objects.filter(cluster=OuterRef("cluster"), status=Status.PENDING)
    waiting_members = others.filter(is_elastic=False).order_by("rank")
    is_next = Q(is_elastic=True, cluster__started_at__isnull=False) & ~Exists(
        others.filter(is_elastic=True, rank__lt=OuterRef("rank"))
    )
    leases = Lease.objects.filter(session__cluster=OuterRef("cluster")).order_by()
    shares = GpuShare.objects.filter(lease__session__cluster=OuterRef("cluster")).order_by()
    settled = Case(
        When(cluster__host_addresses=[], then=ArraySubquery(waiting_members.values("pk"))),
        default=Value([], ArrayField(CharField())),
    )
    is_resumed = Q(cluster__isnull=False, parked_on__isnull=False)
    columns: dict[str, Any] = {name: F(name) for name in WaitingRow._fields} | {
        "group_id": F("resource_group_id"),
        "since": Greatest("created_at", "not_before"),
        "duration": time_bound(),
        "architecture": F("image__architecture"),
        "is_local": F("image__is_local"),
        "group_waits": Cast("group_waits", TextField()),
        "parked_on": F("parked_on__name"),
        "claim": Cast("claim", TextField()),
        "members": Coalesce(Case(When(is_elastic=False, then=F("cluster__size"))), 1),
        "shares_gpus": Coalesce("cluster__shares_gpus", False),
        "mode": Coalesce("cluster__mode", Value("single-host")),
        "restarts": Coalesce("cluster__restarts", 0),
        "member_ids": Case(When(cluster__isnull=False, is_elastic=False, then=settled)),
        "parked_hosts": Case(When(is_resumed, then=ArraySubquery(waiting_members.values("parked_on")))),
        **{f"other_{name}": _of_others(name) for name in ("cpu", "memory", "fgpu", "gpu_memory", "min_fgpu")},
        "beside_hosts": Case(When(is_elastic=True, then=ArraySubquery(leases.values("host").distinct()))),
        "beside_gpus": Case(When(is_elastic=True, then=ArraySubquery(shares.values("gpu").distinct()))),
    }
    return sessions.filter(Q(rank=0) | is_next, status=Status.PENDING).values_list(*columns.values())


def _of_others(name: str) -> Case:
    """Return the expression of an amount of each member but the first."""
    second = Session.objects.filter(cluster=OuterRef("cluster"), rank=1)
    own = When(cluster__main_differs=True, then=Coalesce(Subquery(second.values(name)[:1]), name))
    return Case(own, default=F(name))


def dependencies(ids: Collection[str] | None) -> dict[str, datetime | None]:
    """Return {session id: time at which the last of its dependencies was met, None unless all are}."""
    return {session_id: last if are_met else None for session_id, are_met, last in fetch(_dependency_rows, ids)}


def _dependency_rows(sessions: SessionQuerySet) -> QuerySet[Session, tuple[str, bool, datetime | None]]:
    """Return the rows behind `dependencies`."""
    return (
        sessions.filter(status=Status.PENDING, dependencies__isnull=False)
        .values_list("pk")
        .annotate(are_met=BoolAnd(is_met("dependencies__")), last=Max(met_at("dependencies__")))
    )
