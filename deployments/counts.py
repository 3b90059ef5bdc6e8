"""How many replicas deployments have, in one query for any number of them, and whether each gets requests."""

from datetime import UTC, datetime
from typing import Final

from django.db.models import Count, F, Q, QuerySet
from django.db.models.functions import Coalesce

from deployments.models import Deployment, Replica, ReplicaHealth
from sessions.lifecycle import LIVE, Status

SERVING, DRAINING, NO_TRAFFIC = ("serving", "draining", "none")
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LIVE: Final = Q(replica_rows__session__status__in=LIVE)
_READY: Final = Q(
    replica_rows__session__status=Status.RUNNING,
    replica_rows__health=ReplicaHealth.HEALTHY,
    replica_rows__draining_since=None,
)
_UPDATED: Final = Q(
    replica_rows__revision=F("revision"),
    replica_rows__draining_since=None,
    replica_rows__created_at__gte=Coalesce("restarted_at", _LONG_AGO),
)


def with_counts(deployments: QuerySet[Deployment]) -> QuerySet[Deployment]:
    """Annotate `ready` replicas, which get requests, `live` ones, and those of them that are `updated`."""
    return deployments.annotate(
        ready=Count("replica_rows", filter=_READY),
        live=Count("replica_rows", filter=_LIVE),
        updated=Count("replica_rows", filter=_LIVE & _UPDATED),
    )


def traffic_of(replica: Replica) -> str:
    """Return whether requests go to a replica, or did and are being finished."""
    if replica.takes_requests:
        return SERVING
    return DRAINING if replica.draining_since and replica.session.status == Status.RUNNING else NO_TRAFFIC
