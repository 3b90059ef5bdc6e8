"""Room for what a change of a deployment launches: said beforehand, as it then is, and without writes."""

from typing import Any

import pytest
from rest_framework.test import APIClient

from deployments import services
from deployments.models import Deployment
from deployments.replicas.reconciliation import reconcile
from deployments.tests.making import (
    deployment_request,
    heal,
    make_deployment,
    revision_request,
    run_replicas,
    serving_deployment,
)
from resources.amounts.units import GIB
from resources.models import Host
from scheduler.cycle.passes import run_pass
from sessions.errors import RejectedError
from sessions.lifecycle import Status
from sessions.models import Session
from sessions.resizing import services as resizing
from sessions.resizing.sizes import SessionSize, StoredResize
from tests.api import client_of
from tests.factories import make_host, make_policy, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def host() -> Host:
    """A host on which four replicas run beside each other."""
    return make_host(cpu=4, memory=64 * GIB)


def placement(deployment: Deployment, **body: Any) -> dict[str, Any]:
    before = Session.objects.count()
    answer = client_of(deployment.owner).post(f"/api/v1/deployments/{deployment.pk}/placement/", body, format="json")
    assert answer.status_code == 200, answer.content
    assert Session.objects.count() == before
    found: dict[str, Any] = answer.json()
    return found


def starting(deployment: Deployment) -> int:
    """Roll the next revision out, have the scheduler pass, and return how many of its replicas have a place."""
    reconcile(deployment.pk)
    run_pass()
    return deployment.replica_rows.filter(revision__number=2, session__status=Status.SCHEDULED).count()


@pytest.mark.parametrize(
    ("serving", "settings", "launches", "starts_now"),
    [
        (3, {}, 1, 1),
        (4, {}, 1, 0),
        (2, {"max_surge": 2}, 2, 2),
        (4, {"max_surge": 0, "max_unavailable": 1}, 0, 0),
        (2, {"strategy": "blue_green"}, 2, 2),
        (3, {"strategy": "blue_green"}, 3, 1),
        (2, {"strategy": "canary", "canary_steps": [5, 100 - 1]}, 2, 2),
    ],
)
def test_what_is_said_of_a_rollout_is_what_happens(
    host: Host, serving: int, settings: dict[str, Any], launches: int, starts_now: int
) -> None:
    deployment = serving_deployment(serving, host=host, **settings)
    found = placement(deployment, note="the next one")
    assert (found["launches"], found["starts_now"]) == (launches, starts_now)
    assert found["waits"] == (starts_now < launches)
    if "canary_steps" not in settings:  # which launches one at its first step
        services.new_revision(deployment, revision_request(), actor=deployment.owner)
        assert starting(deployment) == starts_now
    assert deployment.replica_rows.taking_requests().filter(revision__number=1).count() >= serving - (launches == 0)


def test_what_a_replica_waits_for_is_said(host: Host) -> None:
    found = placement(serving_deployment(4, host=host), replicas=6)
    assert (found["launches"], found["starts_now"], found["starts"]) == (2, 0, None)
    assert found["words"].startswith(
        "There is too little room now: 0 of 2 can start at once, while what serves goes on. "
    )
    assert "core" in found["words"]


def test_room_for_fewer_or_the_same_is_never_missing(host: Host) -> None:
    deployment = serving_deployment(4, host=host)
    assert placement(deployment, replicas=1)["words"] == "No further replica is launched."
    assert placement(deployment, revision=1)["words"] == "No further replica is launched."


def test_a_deployment_to_make_is_placed_without_being_made(host: Host) -> None:
    image = revision_request().image
    body = {"name": "chat", "image": image.reference, "cpu": 2, "memory": "1g", "command": "serve", "replicas": 3}
    api = client_of(make_user())
    found = api.post("/api/v1/deployments/placement/", body, format="json").json()
    assert (found["launches"], found["starts_now"], found["waits"]) == (3, 2, True)
    assert not Deployment.objects.exists()
    taken = api.post("/api/v1/deployments/placement/", body | {"name": "Chat"}, format="json")
    assert (taken.status_code, set(taken.json()["errors"])) == (400, {"name"})


def test_what_no_host_can_hold_is_refused_at_its_field(host: Host) -> None:
    deployment = serving_deployment(1, host=host)
    api = client_of(deployment.owner)
    for url in ("placement", "revisions"):
        answer = api.post(f"/api/v1/deployments/{deployment.pk}/{url}/", {"cpu": 5}, format="json")
        assert (answer.status_code, set(answer.json()["errors"])) == (400, {"cpu"})
    assert deployment.revisions.count() == 1


@pytest.mark.parametrize(
    ("settings", "is_refused"),
    [
        ({}, True),
        ({"max_surge": 0, "max_unavailable": 1}, False),
        ({"max_unavailable": 1}, False),
        ({"strategy": "blue_green"}, True),
        ({"strategy": "canary"}, True),
    ],
)
def test_a_rollout_that_the_policy_never_allows_is_refused(settings: dict[str, Any], is_refused: bool) -> None:
    owner = make_user(policy=make_policy(max_sessions=2))
    deployment = serving_deployment(2, owner=owner, **settings)
    if not is_refused:
        services.new_revision(deployment, revision_request(), actor=owner)
        return
    with pytest.raises(RejectedError, match="2 sessions at once, which is too little for") as refused:
        services.new_revision(deployment, revision_request(), actor=owner)
    assert set(refused.value.errors) == {"replicas"}
    later = services.new_revision(deployment, revision_request(), actor=owner, activates=False)
    with pytest.raises(RejectedError) as refused:
        services.activate(deployment, later, actor=owner)
    assert set(refused.value.errors) == {"revision"}
    services.set_replicas(deployment, 1, actor=owner)
    reconcile(deployment.pk)
    services.activate(deployment, later, actor=owner)


def test_only_one_change_is_asked_about_by_those_who_may(host: Host) -> None:
    deployment = serving_deployment(1, host=host)
    url = f"/api/v1/deployments/{deployment.pk}/placement/"
    api = client_of(deployment.owner)
    assert api.post(url, {"replicas": 2, "cpu": 1}, format="json").status_code == 400
    assert api.post(url, {"revision": 9}, format="json").status_code == 404
    assert client_of(make_user()).post(url, {"replicas": 2}, format="json").status_code == 404
    assert APIClient().post(url, {"replicas": 2}, format="json").status_code == 401
    services.end(deployment, actor=deployment.owner)
    assert api.post(url, {"replicas": 2}, format="json").status_code == 404


def test_a_preview_checks_names_as_the_command_does() -> None:
    deployment = make_deployment(name="chat")
    with pytest.raises(RejectedError):
        services.check(deployment.owner, deployment_request(name="chat"))


def test_a_return_in_mid_rollout_counts_what_serves() -> None:
    """The new revision is bigger, and most replicas are of the old one still."""
    owner = make_user(policy=make_policy(cpu=8))
    deployment = serving_deployment(4, host=make_host(cpu=32), owner=owner, revision=revision_request(cpu=1))
    old = deployment.revision
    assert old is not None
    services.new_revision(deployment, revision_request(cpu=2), actor=owner)
    reconcile(deployment.pk)
    heal(*run_replicas(deployment, Host.objects.get(group=deployment.resource_group)))
    reconcile(deployment.pk)
    assert services.activate(deployment, old, actor=owner).revision == old


def test_grown_replicas_count_with_what_they_hold_now() -> None:
    owner = make_user(policy=make_policy(fgpu=1000))
    host = make_host(gpus=1)
    deployment = serving_deployment(1, host=host, owner=owner, revision=revision_request(fgpu=200))
    services.check_revision(deployment, revision_request(fgpu=300))
    [session] = Session.objects.filter(replica__deployment=deployment)
    size = SessionSize(cpu=session.cpu, memory=session.memory, fgpu=800)
    stored = StoredResize.of(resizing.resize(session, size, actor=owner))
    assert stored is not None
    resizing.finish(session.pk, stored.id)
    with pytest.raises(RejectedError, match="too little for the 1 that serve and 1 of the new revision"):
        services.check_revision(deployment, revision_request(fgpu=300))
