"""Deployments whose revisions are rolled out by steps, and what these have answered."""

from datetime import timedelta
from typing import Any

from django.conf import settings as config

from deployments import figures, services
from deployments.models import Deployment, StepwiseRollout
from deployments.replicas.reconciliation import reconcile
from deployments.tests.making import heal, revision_request, run_replicas, serving_deployment
from proxy.authorization.control_plane import ServiceFigures, latency_bin
from resources.models import Host
from tests.factories import make_host

MINUTE = timedelta(minutes=1)


def grow(deployment: Deployment) -> None:
    """Reconcile, have new replicas run and be healthy, and reconcile again."""
    reconcile(deployment.pk)
    heal(*run_replicas(deployment, Host.objects.get(group=deployment.resource_group)))
    reconcile(deployment.pk)


def our_deployment(replicas: int, **settings: Any) -> Deployment:
    """Return a deployment that serves on this host, so that data planes reach its replicas."""
    return serving_deployment(replicas, host=make_host(name=config.COMPUTE_HOST_NAME), **settings)


def begun(replicas: int = 4, strategy: str = "canary", **settings: Any) -> Deployment:
    """Return a deployment whose second revision has the requests of its first step."""
    deployment = our_deployment(replicas, strategy=strategy, step_seconds=60, **settings)
    services.new_revision(deployment, revision_request(), actor=deployment.owner)
    grow(deployment)
    return deployment


def answer(deployment: Deployment, revision: int, requests: int, errors: int = 0, seconds: float = 0.1) -> None:
    """Have a data plane report requests that this revision has answered."""
    served = ServiceFigures(
        deployment=deployment.pk,
        session="",
        revision=revision,
        requests=requests,
        errors=errors,
        latencies={latency_bin(seconds): requests},
    )
    figures.store("p1", [served])


def let_step_pass(deployment: Deployment, *, by: timedelta = MINUTE) -> None:
    """Have the running step be older by so much."""
    rollout = StepwiseRollout.objects.get(deployment=deployment)
    assert rollout.begun_at is not None
    StepwiseRollout.objects.filter(deployment=deployment).update(begun_at=rollout.begun_at - by)
