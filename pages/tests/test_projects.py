"""Pages of projects: the choice of one at launch."""

from http import HTTPStatus

import pytest

from pages.launch.offer import LaunchOffer
from pages.launch.queries import launch_facts
from sessions.models import Session
from tests.api import client_of
from tests.factories import make_host, make_image, make_policy, make_project, make_session, make_user, run_session
from tests.web import browser_of, text_of

pytestmark = pytest.mark.django_db


def test_wizard_and_limits_count_for_the_chosen_project() -> None:
    host = make_host(gpus=2)
    policy = make_policy(fgpu=1000, max_pending=4, max_per_launch=3)
    owner, group = make_user(policy=make_policy(fgpu=2000, max_pending=10)), host.group
    project = make_project(owner, name="vision", policy=policy)
    run_session(host=host, owner=owner, project=project, fgpu=400)
    make_session(owner=owner, project=project, resource_group=group)
    answer = client_of(owner).get("/api/v1/me/limits/", {"project": "vision"})
    assert answer.status_code == HTTPStatus.OK, answer.content
    limits = answer.json()
    assert (limits["remaining"]["fgpu"], limits["remaining"]["pending"], limits["max_per_launch"]) == ("0.6", 3, 3)
    assert limits["project"]["used"]["sessions"] == 1
    facts = launch_facts(LaunchOffer.load(owner))["left"]
    assert (facts[""]["fgpu"], facts[str(project.pk)]["fgpu"], facts[str(project.pk)]["perLaunch"]) == (1600, 600, 3)
    image = make_image()
    form = {"image": image.pk, "project": project.pk, "resource_group": group.pk, "preset": "", "count": 1}
    form |= {"cpu": 1, "memory": "1g", "shared_memory": "64m", "fgpu": "1.01"}
    browser = browser_of(owner)
    assert "The project vision allows at most 1 fGPU." in browser.post("/sessions/launch/", form).content.decode()
    assert browser.post("/sessions/launch/", form | {"fgpu": "0.5"}).status_code == HTTPStatus.FOUND
    started = Session.objects.get(fgpu=500)
    assert started.project == project
    page = text_of(browser, f"/sessions/launch/?again={started.pk}")
    assert f'<option value="{project.pk}" selected>vision</option>' in page
