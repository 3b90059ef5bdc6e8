"""What is found of the replicas of a deployment, from its rows."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.db.models import Q

from deployments.models import Deployment, Replica, ReplicaHealth, Revision
from deployments.replicas.rollout import PastReplica, ReplicaFact
from resources.models import HostStatus
from sessions.lifecycle import FINAL, Reason, Status

LOST_GRACE: Final = timedelta(seconds=30)  # of a silent host, before its replicas are replaced elsewhere
MAX_PAST: Final = 30  # replicas that are looked at for pauses
LEAD: Final = timedelta(minutes=5)  # before limits end a replica; it is replaced in that time
LAST_LINES: Final = 5
UNHEALTHY_FACTOR: Final = 3  # times the interval and the retries, after which an unhealthy replica is replaced

# For these a replica has failed by itself, or by what its revision says; the others are not its fault.
FAULTS: Final = frozenset(
    {
        Reason.CONTAINER_EXITED,
        Reason.OUT_OF_MEMORY,
        Reason.DISK_LIMIT,
        Reason.SHARED_LIMIT,
        Reason.CONTAINER_LOST,
        Reason.ENFORCEMENT_FAILED,
        Reason.GPU_LIMIT_EXCEEDED,
        Reason.GPU_TIME_EXCEEDED,
        Reason.HOOK_BYPASSED,
        Reason.MOUNT_FAILED,
        Reason.START_FAILED,
        Reason.IMAGE_UNAVAILABLE,
        Reason.START_TIMEOUT,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The replicas of a deployment that were not settled before."""

    serving: list[Replica]  # that neither drain nor have ended: they serve, or are to
    draining: list[Replica]
    asleep: list[Replica]  # parked, or on the way there, until the deployment wakes
    ended: list[Replica]


def observe(deployment: Deployment) -> Observed:
    """Return the replicas whose ends were not taken note of yet, with all that their ends depend on; one query."""
    of_session = ("host", "owner__policy", "project__policy", "resource_group")
    related = ("revision", *(f"session__{name}" for name in of_session))
    rows = list(deployment.replica_rows.filter(is_settled=False).select_related(*related))
    asleep = [row for row in rows if row.is_asleep and row.session.status not in FINAL]
    live = [row for row in rows if not row.is_asleep and row.session.status not in FINAL]
    return Observed(
        serving=[row for row in live if row.draining_since is None and row.session.status != Status.TERMINATING],
        draining=[row for row in live if row.draining_since is not None or row.session.status == Status.TERMINATING],
        asleep=asleep,
        ended=[row for row in rows if row.session.status in FINAL],
    )


def fact_of(replica: Replica, deployment: Deployment, now: datetime, revision_id: int | None = None) -> ReplicaFact:
    """Return what a rollout to this revision, or the current one, needs to know of a replica that is to serve."""
    host = replica.session.host
    is_leaving = (host is not None and host.drain_by is not None) or _ends_soon(replica, now)
    is_restarted = deployment.restarted_at is None or replica.created_at >= deployment.restarted_at
    is_of_revision = replica.revision_id == (revision_id or deployment.revision_id)
    return ReplicaFact(
        id=replica.pk,
        is_current=is_of_revision and is_restarted and not is_leaving,
        is_ready=replica.takes_requests and not (host is not None and host.status == HostStatus.LOST),
        created_at=replica.created_at,
    )


def _ends_soon(replica: Replica, now: datetime) -> bool:
    """Return whether limits end it, or another session does, in time to replace it; shorter lives are let run out."""
    end = replica.session.ends_at
    return end is not None and end - now < LEAD and now - replica.created_at > 2 * LEAD


def past_of(deployment: Deployment, revision: Revision | None = None) -> list[PastReplica]:
    """Return the last replicas of this revision, or the current one, that have ended or are given up lately."""
    since = max(filter(None, (deployment.activated_at, deployment.restarted_at)), default=deployment.created_at)
    rows = deployment.replica_rows.filter(revision=revision or deployment.revision, created_at__gte=since)
    last = rows.select_related("session").order_by("-created_at")[:MAX_PAST]
    ends = [(row, row.session.ended_at or (row.draining_since if row.failure else None)) for row in last]
    return [
        PastReplica(
            has_failed=bool(row.failure), created_at=row.created_at, healthy_at=row.healthy_at, ended_at=ended_at
        )
        for row, ended_at in ends
        if ended_at
    ]


def was_any_healthy(deployment: Deployment) -> bool:
    """Return whether a replica of the current revision was healthy since it became so."""
    rows = deployment.replica_rows.filter(revision=deployment.revision)
    since = deployment.activated_at or deployment.created_at
    was_healthy = Q(healthy_at__isnull=False) | Q(woken_at__isnull=False)  # only what was healthy is parked
    return rows.filter(was_healthy, created_at__gte=since).exists()


def failure_of(replica: Replica) -> str:
    """Return why a replica that has ended failed; "" where that was not its fault."""
    if replica.failure:
        return replica.failure
    session = replica.session
    if replica.draining_since is not None or session.reason not in FAULTS:
        return ""
    code = f" Exit code {session.exit_code}." if session.exit_code else ""
    return f"{session.detail}{code if str(session.exit_code) not in session.detail else ''}"[:300]


def given_up_words(replica: Replica, now: datetime) -> str:
    """Return why a replica is to be replaced that has not ended; "" where it is not."""
    revision, since = replica.revision, replica.unhealthy_at
    if replica.health != ReplicaHealth.UNHEALTHY or since is None:
        return ""
    patience = timedelta(seconds=UNHEALTHY_FACTOR * revision.interval_seconds * revision.retries)
    return f"It was unhealthy for too long: {replica.health_detail}"[:300] if now - since > patience else ""


def is_on_lost_host(replica: Replica, now: datetime) -> bool:
    """Return whether the host of the replica is silent for so long that it is replaced elsewhere."""
    host = replica.session.host
    return host is not None and host.lost_at is not None and now - host.lost_at > LOST_GRACE


def last_lines(replica: Replica) -> str:
    """Return the last lines of its output, as far as they are kept."""
    return "\n".join(replica.session.log_tail.strip().splitlines()[-LAST_LINES:])
