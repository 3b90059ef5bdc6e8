"""The card *Scaling* of a deployment's page: what it says, and what its forms and buttons change or refuse."""

from typing import Any

import pytest
from django.test import Client

from deployments import services
from deployments.models import Deployment, ScalingRule
from deployments.scaling import services as scaling
from deployments.tests.making import make_deployment, offer_query, revision_request
from pages.deployments.tabs import DeploymentTab
from tests.factories import make_host, make_project, make_user

pytestmark = pytest.mark.django_db
BOUNDS = {"min_replicas": 1, "max_replicas": 4, "idle_minutes": 30, "idle_action": "park", "wake_seconds": 120}
USUAL = BOUNDS | {"down_after_seconds": 300, "cooldown_seconds": 15}


@pytest.fixture
def deployment() -> Deployment:
    return make_deployment()


@pytest.fixture
def pages(client: Client, deployment: Deployment) -> Client:
    client.force_login(deployment.owner)
    return client


def address(deployment: Deployment, rest: str = "") -> str:
    return f"/deployments/{deployment.pk}/{rest}"


def text_of(client: Client, deployment: Deployment) -> str:
    return client.get(address(deployment, "?tab=scaling")).content.decode()


def save(client: Client, deployment: Deployment, **changes: Any) -> Any:
    sent = {f"scaling-{name}": value for name, value in (USUAL | changes).items()}
    return client.post(address(deployment, "scaling/"), sent)


def add(client: Client, deployment: Deployment, **fields: Any) -> Any:
    return client.post(address(deployment, "scaling/rules/"), {f"rule-{name}": each for name, each in fields.items()})


def test_bounds_and_sleep_are_saved_and_said(pages: Client, deployment: Deployment) -> None:
    assert "Not scaled by its load" in text_of(pages, deployment)
    assert save(pages, deployment).status_code == 302
    add(pages, deployment, metric="outstanding", target=16)
    page = text_of(pages, deployment)
    assert "1 to 4 replicas; 16 requests a replica; sleeps after 30 minutes without" in page
    assert 'value="30"' in page
    save(pages, deployment, min_replicas=4, idle_minutes="", is_preemptible="on")
    assert "a replica; those beyond 4 give way to sessions that wait; never" in text_of(pages, deployment)
    save(pages, deployment, min_replicas=4, idle_minutes="")
    assert "4 replicas; 16 requests a replica; never sleeps" in text_of(pages, deployment)
    assert save(pages, deployment, max_replicas="", idle_minutes="").status_code == 302
    deployment.refresh_from_db()
    assert (deployment.max_replicas, deployment.idle_seconds) == (None, None)


def test_queries_are_chosen_by_name(pages: Client, deployment: Deployment, settings: Any) -> None:
    settings.COMPUTE_PROMETHEUS_URL = "http://127.0.0.1:1"
    offer_query("jobs", "sum(secret)", title="Jobs that wait")
    assert '<option value="jobs">Jobs that wait</option>' in text_of(pages, deployment)
    assert add(pages, deployment, metric="query", target=2, query="up").status_code == 422
    assert add(pages, deployment, metric="query", target=2, query="jobs").status_code == 302
    assert "sum(secret)" not in text_of(pages, deployment)
    assert ScalingRule.objects.get().query == "jobs"


def test_the_most_of_a_share_is_saved_and_said(client: Client) -> None:
    deployment = make_deployment(host=make_host(gpus=1), revision=revision_request(fgpu=200))
    client.force_login(deployment.owner)
    assert save(client, deployment, max_fgpu="0.8").status_code == 302
    page = text_of(client, deployment)
    assert "a replica grows to 0.8 fGPU first" in page
    assert 'value="0.8"' in page
    assert save(client, deployment, max_fgpu="3").status_code == 422


def test_a_part_of_a_minute_stays_as_it_is(pages: Client, deployment: Deployment) -> None:
    scaling.change(deployment, {"max_replicas": 4, "idle_seconds": 100}, actor=deployment.owner)
    form = pages.get(address(deployment)).context["scaling_form"]
    save(pages, deployment, idle_minutes=form["idle_minutes"].value())
    deployment.refresh_from_db()
    assert deployment.idle_seconds == 100


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"min_replicas": ""}, "min_replicas"),
        ({"min_replicas": 0}, "min_replicas"),
        ({"min_replicas": 5}, "max_replicas"),
        ({"max_replicas": "9" * 30}, "max_replicas"),
        ({"idle_minutes": "0.5"}, "idle_minutes"),
        ({"idle_minutes": "1e308"}, "idle_minutes"),
        ({"max_replicas": ""}, "idle_minutes"),
        ({"idle_action": "nap"}, "idle_action"),
        ({"wake_seconds": 601}, "wake_seconds"),
        ({"down_after_seconds": 9}, "down_after_seconds"),
        ({"cooldown_seconds": -1}, "cooldown_seconds"),
    ],
)
def test_wrong_bounds_are_refused_at_their_field(
    pages: Client, deployment: Deployment, wrong: dict[str, Any], field: str
) -> None:
    answer = save(pages, deployment, **wrong)
    assert answer.status_code == 422
    assert list(answer.context["scaling_form"].errors) == [field]
    assert f'id="id_scaling-{field}_error"' in answer.content.decode()
    deployment.refresh_from_db()
    assert deployment.max_replicas is None


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        ({"metric": "outstanding", "target": ""}, "target"),
        ({"metric": "outstanding", "target": "nan"}, "target"),
        ({"metric": "outstanding", "target": 0}, "target"),
        ({"metric": "mood", "target": 1}, "metric"),
        ({"metric": "gpu", "target": 60}, "metric"),  # its replicas have none
        ({"metric": "query", "target": 1}, "metric"),
        ({"metric": "requests", "target": 1, "query": "up"}, "query"),
    ],
)
def test_a_wrong_rule_is_refused_at_its_field(
    pages: Client, deployment: Deployment, rule: dict[str, Any], field: str
) -> None:
    answer = add(pages, deployment, **rule)
    assert answer.status_code == 422
    assert field in answer.context["rule_form"].errors
    assert f'id="id_rule-{field}_error"' in answer.content.decode()
    assert not ScalingRule.objects.exists()


def test_rules_are_paused_changed_and_removed(pages: Client, deployment: Deployment) -> None:
    add(pages, deployment, metric="requests", target=2.5)
    rule = ScalingRule.objects.get()

    def press(rest: str = "", **data: Any) -> str:
        assert pages.post(address(deployment, f"scaling/rules/{rule.pk}/{rest}"), data).status_code == 302
        return text_of(pages, deployment)

    assert "paused</span>" in press(paused="yes")
    assert "paused</span>" not in press(paused="no")
    assert "7 requests a second a replica" in press(target=7)
    for wrong in ("", "x", "-1", "inf"):
        assert "Choose a number from 0.01 to" in press(target=wrong)
    assert f'id="rule-{rule.pk}"' not in press("remove/")
    assert not ScalingRule.objects.exists()
    assert pages.post(address(deployment, f"scaling/rules/{rule.pk}/remove/")).status_code == 404


def test_what_sleeps_says_so_and_is_woken(pages: Client, deployment: Deployment) -> None:
    assert 'id="sleep"' not in text_of(pages, deployment)
    save(pages, deployment, min_replicas=2)
    assert 'id="sleep"' in text_of(pages, deployment)
    pages.post(address(deployment, "sleep/"))
    page = text_of(pages, deployment)
    assert "Asleep since" in page
    assert 'id="wake"' in page
    assert 'id="sleep"' not in page
    pages.post(address(deployment, "wake/"))
    deployment.refresh_from_db()
    assert (deployment.replicas, deployment.asleep_since) == (2, None)
    assert 'id="wake"' not in text_of(pages, deployment)


def test_members_see_scaling_and_managers_change_it(client: Client) -> None:
    owner, member, manager = make_user(), make_user(), make_user()
    deployment = make_deployment(owner, project=make_project(owner, member, managers=[manager]))
    other = make_deployment(owner, name="other")
    rule = scaling.add_rule(deployment, metric="requests", target=3, actor=owner)
    client.force_login(member)
    page = text_of(client, deployment)
    assert "3 requests a second a replica" in page
    assert "scaling/rules/" not in page
    assert save(client, deployment).status_code == 404
    client.force_login(manager)
    assert save(client, deployment).status_code == 302
    client.force_login(owner)
    assert client.post(address(other, f"scaling/rules/{rule.pk}/remove/")).status_code == 404
    services.end(deployment, actor=owner)
    assert "scaling/rules/" not in text_of(client, deployment)


def test_scaling_and_what_was_done_is_said_in_korean(pages: Client, deployment: Deployment) -> None:
    add(pages, deployment, metric="outstanding", target=16)
    save(pages, deployment)
    page = pages.get(address(deployment), headers={"Accept-Language": "ko"}).content.decode()
    assert "레플리카당 요청 16개; 요청 없이 30분 지나면 잠듦" in page
    assert 'data-bs-dismiss="alert"' in page


def test_a_tab_asks_for_what_it_shows_alone(pages: Client, deployment: Deployment) -> None:
    parts = {"hour", "replicas", "revisions", "events", "rules", "usage"}
    found = {}
    for tab in DeploymentTab:
        answer = pages.get(f"/deployments/{deployment.pk}/?tab={tab}", headers={"HX-Request": "true"})
        assert answer.status_code == 200
        found[tab] = {name for name in parts if name in answer.context}
    assert found == {
        DeploymentTab.OVERVIEW: parts - {"usage"},
        DeploymentTab.TOKENS: {"usage"},
        DeploymentTab.SCALING: {"rules"},
        DeploymentTab.SETTINGS: {"rules"},
    }
