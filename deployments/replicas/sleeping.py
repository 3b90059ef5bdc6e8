"""Parks a replica of a deployment that falls asleep, and has it go on when the deployment wakes.

Of the replicas one is parked at most, since one is woken; a replica that cannot be parked ends like the others.
"""

import logging
from datetime import datetime, timedelta
from typing import Final

from deployments.models import Deployment, Replica, ReplicaHealth, SleepAction
from deployments.replicas import observation
from resources import clock
from sessions.errors import RejectedError
from sessions.launching import services as sessions
from sessions.lifecycle import Reason, Status
from sessions.parking import services as parking

logger = logging.getLogger(__name__)

RESUME_PATIENCE: Final = timedelta(seconds=15)  # for which a replica waits for the host that has its files
PARKED: Final = "Its deployment sleeps until a request comes."
NO_ROOM: Final = "The host that has its files does not resume it."
NOT_NEEDED: Final = "Its deployment no longer needs it."


def is_to_be_parked(row: Deployment, replica: Replica, asleep: list[Replica], now: datetime) -> bool:
    """Return whether the replica, which drains, is the one to wake the deployment with."""
    parks = row.asleep_since is not None and row.idle_action == SleepAction.PARK
    return parks and not asleep and may_return(row, replica, now)


def park(replica: Replica) -> bool:
    """Park the replica; return False where it cannot be parked."""
    try:
        parking.park(replica.session, Reason.PARKED, PARKED)
    except RejectedError as error:
        logger.info("replica %s: not parked: %s", replica.pk, error.errors)
        return False
    replica.is_asleep = True
    replica.save(update_fields=["is_asleep"])
    return True


def resume(replica: Replica) -> bool:
    """Have the parked replica go on; return False where it cannot, and has been ended."""
    try:
        parking.resume(replica.session)
    except RejectedError as error:
        logger.info("replica %s: not resumed: %s", replica.pk, error.errors)
        end(replica)
        return False
    take_back(replica)
    return True


def take_back(replica: Replica) -> None:
    """Count the replica among those that serve, or are about to: it drains no more, and must be healthy anew."""
    was_asleep = replica.is_asleep
    replica.is_asleep, replica.draining_since = False, None
    fields = ["is_asleep", "draining_since"]
    if was_asleep:
        replica.health, replica.health_detail, replica.failures = ReplicaHealth.STARTING.value, "", 0
        replica.healthy_at, replica.unhealthy_at, replica.woken_at = None, None, clock.now()
        fields += ["health", "health_detail", "failures", "healthy_at", "unhealthy_at", "woken_at"]
    replica.save(update_fields=fields)


def may_return(row: Deployment, replica: Replica, now: datetime) -> bool:
    """Return whether a replica that drains could as well go on serving."""
    host = replica.session.host
    return (
        replica.draining_since is not None
        and host is not None
        and host.lost_at is None
        and not replica.failure
        and replica.health == ReplicaHealth.HEALTHY
        and replica.session.status == Status.RUNNING
        and replica.session.preempt_by is None
        and observation.fact_of(replica, row, now).is_current
    )


def end(replica: Replica) -> None:
    """End a replica that is parked."""
    sessions.end(replica.session, Reason.DEPLOYMENT, NOT_NEEDED)


def is_of_use(row: Deployment, replica: Replica, now: datetime) -> bool:
    """Return whether a parked replica can still serve the deployment when it wakes."""
    sleeps = row.asleep_since is not None or row.waking_since is not None
    return sleeps and observation.fact_of(replica, row, now).is_current


def cannot_resume(replica: Replica, now: datetime) -> bool:
    """Return whether a replica that was resumed is back in its sleep, or has no room on its host."""
    session = replica.session
    if session.status == Status.PARKED:
        return True
    waits = session.status == Status.PENDING and session.parked_on_id is not None
    return waits and now - session.status_at > RESUME_PATIENCE
