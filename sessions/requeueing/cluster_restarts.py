"""Clusters that start again as a whole after a member failed, as often as was asked for."""

from collections.abc import Mapping
from typing import Any, Final

from sessions.lifecycle import Reason, Status
from sessions.models import Session
from sessions.requeueing import preemption

FAILURES: Final = frozenset(
    {Reason.CONTAINER_EXITED, Reason.OUT_OF_MEMORY, Reason.CONTAINER_LOST, Reason.HOST_LOST}
)  # of a member that ran, which another start may not have

LOSSES: Final = frozenset({Reason.CONTAINER_LOST, Reason.HOST_LOST})  # by no fault of what ran


def fail(
    session: Session, reason: Reason, detail: str, fields: Mapping[str, Any] | None = None, output: str = ""
) -> None:
    """End a RUNNING session as an error, or return it to the queue where its cluster starts again.

    An elastic member that was lost returns by itself. Of one that returns, `output` is kept.

    In the caller's transaction; the other members follow when the cluster is settled, which counts the restart. Fetch
    `cluster` with it. Raises StaleSessionError where it has moved on.
    """
    cluster = session.cluster
    if session.is_elastic:
        returns = reason in LOSSES
    else:
        returns = cluster is not None and cluster.restarts < cluster.max_restarts and reason in FAILURES
    if not returns:
        session.move_to(Status.ERROR, reason, detail[:300], fields=fields)
        return
    session.move_to(Status.TERMINATING, Reason.CLUSTER_RETURNED, detail[:300], fields=fields)
    preemption.conclude(session, output=output)
