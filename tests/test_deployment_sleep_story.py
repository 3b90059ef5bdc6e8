"""A deployment that falls asleep and wakes, with real containers, a real host worker and a real web process."""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

import pytest
import requests

from deployments import services
from deployments.models import Deployment, DeploymentState
from deployments.scaling import autoscaler
from deployments.scaling import services as scaling
from sessions.lifecycle import LIVE, Status
from sessions.models import Session
from tests.test_deployment_story import Client, client, web, work, works_until
from tests.wait import until

__all__ = ["client", "web"]  # fixtures
pytestmark = [pytest.mark.docker, pytest.mark.django_db(transaction=True)]

COLD: Final = 100  # requests at once


def live(deployment: Deployment) -> list[tuple[str, str]]:
    return list(Session.objects.filter(replica__deployment=deployment, status__in=LIVE).values_list("pk", "status"))


def works_on(asked: list[Future[requests.Response]]) -> bool:
    """Work, and return whether all requests were answered."""
    work()
    return all(each.done() for each in asked)


def falls_asleep(deployment: Deployment) -> str:
    """Work until it sleeps with one replica parked; return that one's session."""

    def found() -> str:
        autoscaler.look()
        work()
        row, sessions = Deployment.objects.get(pk=deployment.pk), live(deployment)
        is_so = row.state == DeploymentState.ASLEEP and [status for _, status in sessions] == [Status.PARKED]
        return sessions[0][0] if is_so else ""

    return until(found)


def test_cold_requests_wake_one_replica_and_all_are_served(client: Client) -> None:
    deployment = client.deployment
    works_until(deployment, healthy={1})
    until(lambda: client.ask().status_code == 200)
    services.change(deployment, {"concurrency": 4}, actor=deployment.owner)  # as its server's backlog is 5
    scaling.change(deployment, {"max_replicas": 2, "idle_seconds": 60, "wake_seconds": 300}, actor=deployment.owner)
    scaling.add_rule(deployment, metric="outstanding", target=50, actor=deployment.owner)
    Deployment.objects.filter(pk=deployment.pk).update(idle_seconds=2)
    parked = falls_asleep(deployment)

    with ThreadPoolExecutor(COLD) as pool:
        asked = [pool.submit(client.ask) for _ in range(COLD)]
        until(lambda: Deployment.objects.get(pk=deployment.pk).waking_since)
        Deployment.objects.filter(pk=deployment.pk).update(idle_seconds=3600)
        until(lambda: works_on(asked))
        assert {each.result().status_code for each in asked} == {200}
        assert {each.result().text for each in asked} == {f"{parked} 1"}
    assert live(deployment) == [(parked, Status.RUNNING)]
    autoscaler.look()
    assert deployment.events.filter(what__startswith="A request wakes it").count() == 1
    said = deployment.events.get(what__startswith="Awake after").what
    assert "until resumed" in said
