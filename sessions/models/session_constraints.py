"""What the database holds of every session, whoever writes it, and by what it finds sessions."""

from datetime import timedelta
from typing import Final

from django.db import models
from django.db.models import F, Q

from sessions.lifecycle import FINAL, HOSTED, LIVE, Kind, Status

_FINAL: Final = sorted(status.value for status in FINAL)
_HOSTED: Final = sorted(status.value for status in HOSTED)
_WITH_COMMAND: Final = (Kind.BATCH.value, Kind.REPLICA.value)
_LIVE: Final = sorted(status.value for status in LIVE)

# Each index is written whenever a session moves, so there is none that only the removal of a host, image or
# group would use.
INDEXES: Final = (
    models.Index(fields=("owner", "-created_at"), name="session_owner_created"),
    models.Index(fields=("project", "-created_at"), condition=Q(project__isnull=False), name="session_project_created"),
    models.Index(
        F("priority").desc(), "created_at", "id", condition=Q(status=Status.PENDING.value), name="session_queue"
    ),
    models.Index(fields=("host",), condition=Q(status__in=_HOSTED), name="session_on_host"),
    models.Index(
        fields=("-ended_at",), condition=Q(ended_at__isnull=False, started_at__isnull=False), name="session_past"
    ),
    models.Index(
        fields=("parked_on",), condition=Q(parked_on__isnull=False, ended_at=None), name="session_parked_on_host"
    ),
)

CONSTRAINTS: Final = (
    models.UniqueConstraint(
        fields=("owner", "name"), condition=Q(status__in=_LIVE, rank=0), name="session_live_name_unique"
    ),
    models.UniqueConstraint(
        fields=("cluster", "rank"), condition=Q(cluster__isnull=False), name="session_one_per_cluster_and_rank"
    ),
    models.CheckConstraint(condition=Q(rank=0) | Q(cluster__isnull=False), name="session_rank_is_of_a_cluster"),
    models.CheckConstraint(condition=Q(shared_memory__lte=F("memory")), name="session_shared_memory_within_memory"),
    models.CheckConstraint(condition=Q(cpu__gte=1), name="session_has_a_core"),
    models.CheckConstraint(
        condition=Q(gpu_memory=0, min_fgpu=0) | Q(gpu_memory__gt=0, fgpu__gt=0), name="session_gpu_memory_is_of_a_gpu"
    ),
    models.CheckConstraint(condition=Q(kind__in=_WITH_COMMAND) ^ Q(command=""), name="session_kind_has_its_command"),
    models.CheckConstraint(
        condition=Q(time_limit=None) | Q(time_limit__gt=timedelta(0)), name="session_time_limit_is_a_span"
    ),
    models.CheckConstraint(
        condition=~Q(status=Status.PENDING.value) | Q(host=None), name="session_pending_has_no_host"
    ),
    models.CheckConstraint(condition=~Q(status__in=_HOSTED) | Q(host__isnull=False), name="session_hosted_has_host"),
    models.CheckConstraint(
        condition=~Q(status=Status.PARKED.value) | Q(host=F("parked_on"), parked_attempt__gt=0, started_at=None),
        name="session_parked_on_its_host",
    ),
    models.CheckConstraint(
        condition=Q(status__in=_FINAL, ended_at__isnull=False) | Q(status__in=_LIVE, ended_at=None),
        name="session_final_has_end",
    ),
)
