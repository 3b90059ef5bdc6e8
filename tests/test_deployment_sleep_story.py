"""A deployment that falls asleep and wakes, with real containers, a real host worker and a real web process."""

import json
import statistics
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from typing import Final

import pytest
import requests

from deployments.models import Deployment, DeploymentState, Replica
from deployments.scaling import autoscaler
from deployments.scaling import services as scaling
from resources import clock
from sessions.lifecycle import LIVE, Status
from sessions.models import Session, SessionEvent
from tests.test_deployment_story import Client, client, web, work, works_until
from tests.wait import until

__all__ = ["client", "web"]  # fixtures
pytestmark = [pytest.mark.docker, pytest.mark.django_db(transaction=True)]

COLD: Final = 100  # requests at once


def live(deployment: Deployment) -> list[tuple[str, str]]:
    return list(Session.objects.filter(replica__deployment=deployment, status__in=LIVE).values_list("pk", "status"))


def wake_figures(parked: str, began_at: datetime, answers: list[requests.Response]) -> dict[str, float]:
    """Return how long a cold request took, in seconds since all were sent, its parts, and `wake_ratio`.

    That is its median to the time in which the session was resumed: from the queue until its container ran.
    """
    waited = statistics.median(answer.elapsed.total_seconds() for answer in answers)
    moves = SessionEvent.objects.filter(session=parked, at__gte=began_at).exclude(old_status="").order_by("pk")
    reached = {event.new_status: event.at for event in moves}
    healthy_at = Replica.objects.get(pk=parked).healthy_at or began_at
    steps = {"queued": reached[Status.PENDING], "placed": reached[Status.SCHEDULED], "running": reached[Status.RUNNING]}
    parts = {f"{name}_s": (at - began_at).total_seconds() for name, at in {**steps, "healthy": healthy_at}.items()}
    resumed = parts["running_s"] - parts["queued_s"]
    return {**parts, "p50_s": waited, "resume_s": resumed, "wake_ratio": waited / resumed}


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
    scaling.change(deployment, {"max_replicas": 2, "idle_seconds": 60, "wake_seconds": 300}, actor=deployment.owner)
    scaling.add_rule(deployment, metric="outstanding", target=50, actor=deployment.owner)
    Deployment.objects.filter(pk=deployment.pk).update(idle_seconds=2)
    parked = falls_asleep(deployment)

    began_at = clock.now()
    with ThreadPoolExecutor(COLD) as pool:
        asked = [pool.submit(client.ask) for _ in range(COLD)]
        until(lambda: Deployment.objects.get(pk=deployment.pk).waking_since)
        Deployment.objects.filter(pk=deployment.pk).update(idle_seconds=3600)
        until(lambda: works_on(asked))
        assert {each.result().status_code for each in asked} == {200}
        assert {each.result().text for each in asked} == {f"{parked} 1"}
    assert live(deployment) == [(parked, Status.RUNNING)]
    print(json.dumps(wake_figures(parked, began_at, [each.result() for each in asked])))  # noqa: T201  # its result
    autoscaler.look()
    assert deployment.events.filter(what__startswith="A request wakes it").count() == 1
    said = deployment.events.get(what__startswith="Awake after").what
    assert "until resumed" in said
