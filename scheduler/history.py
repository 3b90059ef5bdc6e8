"""Recorded sessions of the platform, as input of the simulator."""

from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models.functions import Coalesce, Greatest
from django.utils import timezone

from accounts.limits import Amounts
from accounts.models import User
from resources.models import ResourceGroup
from scheduler.core.types import LimitHolder, SessionRequest, Snapshot, entries_of
from scheduler.simulation.simulator import Job
from scheduler.snapshot.cluster import hosts_of, rules_of
from scheduler.snapshot.fair_use import load_weights
from sessions.models import Session, time_bound

MAX_REPLAYED_SESSIONS: Final = 2000  # bounds the cost of a page


def recorded(
    since: datetime, group: ResourceGroup | None = None, limit: int = MAX_REPLAYED_SESSIONS
) -> tuple[Snapshot, list[Job]]:
    """Return today's hosts, empty, and the latest `limit` sessions that have run since then, in one group or in all.

    Users have today's limits, and they and projects today's weights. Takes six queries.
    """
    now = timezone.now()
    sessions = Session.objects.filter(started_at__isnull=False, created_at__gte=since)
    if group is not None:
        sessions = sessions.filter(resource_group=group)
    rows = sessions.order_by("-created_at", "-id").values_list(
        *("pk", "owner_id", "resource_group_id", "cpu", "memory", "fgpu", "priority"),
        Greatest("created_at", "not_before"),
        time_bound(),
        *("started_at", Coalesce("ended_at", now), "group_choices", "project_id", "core_milli"),
    )
    jobs = [
        Job(
            _request(row, set(row[11]) if group is None else set()),
            max(row[10] - row[9], timedelta(seconds=1)),
        )
        for row in rows[:limit]
    ]
    owners = User.objects.filter(pk__in={job.request.owner_id for job in jobs}).select_related("policy")
    groups = {entry.group_id for entry in entries_of(job.request for job in jobs)} | ({group.pk} if group else set())
    return (
        Snapshot(
            hosts=hosts_of(groups)[0],
            queue=(),
            owners={user.pk: LimitHolder(limits=user.policy.limits(), used=Amounts()) for user in owners},
            rules=rules_of(groups),
            weights=load_weights(),
        ),
        jobs,
    )


def _request(row: tuple[Any, ...], choices: set[int]) -> SessionRequest:
    """Return the request of a recorded session, which may start in any group of `choices` too."""
    names = ("id", "owner_id", "group_id", "cpu", "memory_bytes", "fgpu_milli", "priority", "queued_at", "duration")
    known = dict(zip(names, row, strict=False))
    request = SessionRequest(**known, project_id=row[12], core_milli=row[13])
    others = sorted(choices - {request.group_id})
    return request._replace(alternatives=tuple(request._replace(group_id=each, is_alternative=True) for each in others))
