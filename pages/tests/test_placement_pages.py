"""What pages of deployments say of room, before the button that needs it is pressed."""

from typing import Any

import pytest
from django.test import Client

from deployments import services
from deployments.models import Deployment
from deployments.tests.making import revision_request, serving_deployment
from resources.amounts.units import GIB
from tests.factories import make_host, make_image, make_project, make_user

pytestmark = pytest.mark.django_db
ROOM = "There is room now: 1 replica can start at once, while what serves goes on."
USUAL = {"command": "serve", "memory": "1g", "shared_memory": "64m", "fgpu": "0", "port": "8000", "start_seconds": 300}
FORM = USUAL | {"cpu": 1, "interval_seconds": 5, "timeout_seconds": 2, "retries": 3}


@pytest.fixture
def deployment() -> Deployment:
    """A deployment on a host that has room for one replica more."""
    return serving_deployment(2, host=make_host(cpu=3, memory=64 * GIB))


@pytest.fixture
def pages(client: Client, deployment: Deployment) -> Client:
    client.force_login(deployment.owner)
    return client


def said(answer: Any) -> str:
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def test_a_form_says_whether_its_replicas_have_room(pages: Client, deployment: Deployment) -> None:
    assert deployment.revision is not None
    url = f"/deployments/{deployment.pk}/revisions/new/"
    assert f'hx-post="{url}placement/"' in said(pages.get(url))
    image = deployment.revision.image_id
    assert ROOM in said(pages.post(f"{url}placement/", FORM | {"image": image}))
    refused = said(pages.post(f"{url}placement/", FORM | {"image": image, "cpu": 9}))
    assert "placement" in refused
    assert ROOM not in refused
    assert said(pages.post(f"{url}placement/", {})) == ""
    assert deployment.revisions.count() == 1


def test_the_form_of_a_deployment_says_it_too(pages: Client, deployment: Deployment) -> None:
    new = {"name": "chat", "replicas": 3, "resource_group": deployment.resource_group_id, "image": make_image().pk}
    found = said(pages.post("/deployments/new/placement/", FORM | new))
    assert "There is too little room now: 1 of 3 can start at once" in found
    assert Deployment.objects.count() == 1


def test_scaling_and_activating_say_it_before(pages: Client, deployment: Deployment) -> None:
    page = f"/deployments/{deployment.pk}/"
    services.new_revision(deployment, revision_request(), actor=deployment.owner, activates=False)
    shown = said(pages.get(page))
    assert f'hx-get="{page}placement/?revision=2"' in shown
    assert f'hx-get="{page}placement/"' in shown
    assert ROOM in said(pages.get(f"{page}placement/?revision=2"))
    assert f"<strong>3 replicas wanted:</strong> {ROOM}" in said(pages.get(f"{page}placement/?replicas=3"))
    assert "1 of 2 can start at once" in said(pages.get(f"{page}placement/?replicas=4"))
    for wrong in ("999999999999", "-1", "x", ""):
        assert "Choose a number from 0 to 64." in said(pages.get(f"{page}placement/?replicas={wrong}"))
    assert pages.get(f"{page}placement/?revision=99999999999999999999").status_code == 404


def test_members_ask_about_no_room(client: Client, deployment: Deployment) -> None:
    member = make_user()
    Deployment.objects.update(project=make_project(deployment.owner, member))
    client.force_login(member)
    assert client.get(f"/deployments/{deployment.pk}/placement/?replicas=3").status_code == 404
    assert client.post(f"/deployments/{deployment.pk}/revisions/new/placement/", FORM).status_code == 404
