"""Deployments whose only replica is a server of the test, at a port of this machine."""

from typing import Any

from accounts.models import User
from deployments import services
from deployments.models import Deployment, RuntimeVariant
from deployments.replicas import reconciliation
from deployments.tests.making import deployment_request, heal, revision_request, run_replicas
from resources.models import Host

SUBNETS = "127.0.0.0/8"  # of containers, for the web process


def served_here(owner: User, host: Host, port: int, *, variant: str = "vllm", **overrides: Any) -> Deployment:
    """Return a deployment that serves what listens at a port; the web process is that of the host."""
    revision = revision_request(variant=RuntimeVariant.objects.get(name=variant), port=port)
    deployment = services.create(owner, deployment_request(host=host, revision=revision, **overrides))
    reconciliation.reconcile(deployment.pk)
    [replica] = run_replicas(deployment, host)
    replica.session.address = "127.0.0.1"
    replica.session.save(update_fields=["address"])
    heal(replica)
    reconciliation.reconcile(deployment.pk)
    deployment.refresh_from_db()
    return deployment
