"""Makers of deployments for tests: valid by default; keyword arguments replace any field."""

from datetime import datetime
from typing import Any

from accounts.models import User
from deployments import services
from deployments.models import Deployment, PrometheusQuery, Replica, ReplicaHealth
from deployments.replicas import reconciliation
from deployments.requests import DeploymentRequest, RevisionRequest
from resources import clock
from resources.amounts.units import GIB, MIB
from resources.models import Host
from sessions.lifecycle import Status
from tests.factories import make_host, make_image, make_user, run_session

SERVE = 'exec python3 -m http.server "$PORT"'


def revision_request(**overrides: Any) -> RevisionRequest:
    """Return a request for a revision of 1 core and 1 GiB."""
    fields: dict[str, Any] = {"cpu": 1, "memory": GIB, "shared_memory": 64 * MIB, "command": SERVE} | overrides
    if "image" not in fields:
        fields["image"] = make_image()
    return RevisionRequest(**fields)


def deployment_request(*, host: Host | None = None, **overrides: Any) -> DeploymentRequest:
    """Return a request for a deployment of one replica, on a group with a host."""
    fields: dict[str, Any] = {"name": "model"} | overrides
    if "revision" not in fields:
        fields["revision"] = revision_request()
    if "resource_group" not in fields:
        fields["resource_group"] = (host or make_host()).group
    return DeploymentRequest(**fields)


def offer_query(name: str, expression: str = "", **overrides: Any) -> PrometheusQuery:
    """Return a query that rules may name; its expression is its name unless given."""
    fields = {"title": name, "expression": expression or name} | overrides
    return PrometheusQuery.objects.create(name=name, **fields)


def make_deployment(owner: User | None = None, *, host: Host | None = None, **overrides: Any) -> Deployment:
    """Return a deployment whose replicas are not launched yet."""
    return services.create(owner or make_user(), deployment_request(host=host, **overrides))


def run_replicas(deployment: Deployment, host: Host) -> list[Replica]:
    """Have the replicas that wait run on the host; return all that run, the oldest first."""
    for replica in deployment.replica_rows.filter(session__status=Status.PENDING).select_related("session"):
        run_session(replica.session, host=host)
    running = deployment.replica_rows.filter(session__status=Status.RUNNING, draining_since=None)
    return list(running.select_related("session", "revision").order_by("created_at"))


def heal(*replicas: Replica, at: datetime | None = None) -> None:
    """Have these replicas be healthy, as their host finds them."""
    pks = [replica.pk for replica in replicas]
    at = at or clock.now()
    Replica.objects.filter(pk__in=pks).update(health=ReplicaHealth.HEALTHY.value, healthy_at=at, unhealthy_at=None)


def serving_deployment(replicas: int = 2, *, host: Host | None = None, **overrides: Any) -> Deployment:
    """Return a deployment whose replicas all run and are healthy."""
    host = host or make_host()
    deployment = make_deployment(host=host, replicas=replicas, **overrides)
    reconciliation.reconcile(deployment.pk)
    heal(*run_replicas(deployment, host))
    reconciliation.reconcile(deployment.pk)
    deployment.refresh_from_db()
    return deployment
