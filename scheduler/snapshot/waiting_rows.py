"""The rows of the sessions that wait, and of what they depend on, as the database has them."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Count, F, Max, QuerySet, TextField
from django.db.models.functions import Cast, Greatest

from scheduler.snapshot.compiled_queries import fetch
from sessions.lifecycle import Status
from sessions.models import Session, SessionQuerySet, has_succeeded, time_bound


class WaitingRow(NamedTuple):
    """A row of a waiting session, by whose fields the query asks for columns."""

    id: str
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
    parked_on: str | None  # name of the host
    claim: str | None  # JSON
    group_waits: str  # JSON
    reason: str
    detail: str
    eta: datetime | None
    eta_reason: str
    start_failures: int
    status_at: datetime

    def groups(self) -> Sequence[int]:
        """Return the ids of the groups that it waits for, the preferred first."""
        return self.group_choices or (self.group_id,)

    def waits_for(self, group_id: int | None) -> bool:
        """Return whether it waits for a group; None is any."""
        return group_id is None or group_id in self.groups()


def waiting_rows(sessions: SessionQuerySet) -> QuerySet[Session, tuple[Any, ...]]:
    """Return the rows of the sessions that wait, whose columns are the fields of `WaitingRow`."""
    columns: dict[str, Any] = {name: F(name) for name in WaitingRow._fields} | {
        "group_id": F("resource_group_id"),
        "since": Greatest("created_at", "not_before"),
        "duration": time_bound(),
        "architecture": F("image__architecture"),
        "is_local": F("image__is_local"),
        "group_waits": Cast("group_waits", TextField()),
        "parked_on": F("parked_on__name"),
        "claim": Cast("claim", TextField()),
    }
    return sessions.filter(status=Status.PENDING).values_list(*columns.values())


def dependencies(ids: Collection[str] | None) -> dict[str, datetime | None]:
    """Return {session id: time of the last success of its dependencies, None unless all have succeeded}."""
    return {session_id: last if done == of else None for session_id, done, of, last in fetch(_dependency_rows, ids)}


def _dependency_rows(sessions: SessionQuerySet) -> QuerySet[Session, tuple[str, int, int, datetime | None]]:
    """Return the rows behind `dependencies`."""
    return (
        sessions.filter(status=Status.PENDING, depends_on__isnull=False)
        .values_list("pk")
        .annotate(
            done=Count("depends_on", filter=has_succeeded("depends_on__")),
            of=Count("depends_on"),
            last=Max("depends_on__ended_at"),
        )
    )
