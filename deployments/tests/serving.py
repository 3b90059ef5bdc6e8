"""Replicas for tests, which run without a host worker."""

from typing import Any

from deployments.models import Deployment, Replica, ReplicaHealth
from tests.factories import make_host, run_session


def make_replica(deployment: Deployment, **overrides: Any) -> Replica:
    """Return a healthy replica that runs the current revision."""
    name = f"{deployment.name}-replica-{deployment.replica_rows.count()}"
    session = run_session(owner=deployment.owner, host=make_host(gpus=1), project=deployment.project, name=name)
    fields: dict[str, Any] = {"revision": deployment.revision, "health": ReplicaHealth.HEALTHY.value} | overrides
    return Replica.objects.create(session=session, deployment=deployment, **fields)
