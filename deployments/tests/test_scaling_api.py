"""Scaling over the API: shown to whom the deployment is, changed by whom may operate it, refused at the field."""

from typing import Any

import pytest
from rest_framework.test import APIClient

from deployments.models import Deployment, ScalingRule
from deployments.tests.making import make_deployment, offer_query
from tests.api import client_of
from tests.factories import make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def deployment() -> Deployment:
    return make_deployment()


@pytest.fixture
def api(deployment: Deployment) -> APIClient:
    return client_of(deployment.owner)


def address(deployment: Deployment, rest: str = "") -> str:
    return f"/api/v1/deployments/{deployment.pk}/scaling/{rest}"


def errors_of(answer: Any) -> set[str]:
    assert answer.status_code == 400, answer.content
    return set(answer.json()["errors"])


def test_scaling_is_set_and_shown(api: APIClient, deployment: Deployment) -> None:
    answer = api.patch(
        address(deployment), {"max_replicas": 4, "idle_seconds": 900, "preemptible": True}, format="json"
    )
    assert answer.status_code == 200, answer.content
    shown = api.get(address(deployment)).json()
    assert shown == answer.json()
    assert (shown["min_replicas"], shown["max_replicas"], shown["idle_seconds"]) == (1, 4, 900)
    assert (shown["preemptible"], shown["max_fgpu"]) == (True, None)
    assert (shown["rules"], shown["asleep_since"], shown["decision"]) == ([], None, "")


def test_named_queries_are_listed_without_what_they_ask(api: APIClient, deployment: Deployment) -> None:
    offer_query("jobs", "sum(secret)", title="Jobs that wait")
    shown = api.get(address(deployment))
    assert shown.json()["queries"] == [{"name": "jobs", "title": "Jobs that wait"}]
    assert "secret" not in shown.content.decode()


def test_rules_are_added_changed_and_removed(api: APIClient, deployment: Deployment) -> None:
    made = api.post(address(deployment, "rules/"), {"metric": "outstanding", "target": 16}, format="json")
    assert made.status_code == 201, made.content
    rule = address(deployment, f"rules/{made.json()['id']}/")
    assert api.patch(rule, {"paused": True, "target": 8}, format="json").json() == {
        **made.json(),
        "paused": True,
        "target": 8.0,
    }
    assert api.get(address(deployment)).json()["rules"][0]["paused"] is True
    assert api.delete(rule).status_code == 204
    assert api.delete(rule).status_code == 404
    assert not ScalingRule.objects.exists()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"max_replicas": 65}, "max_replicas"),
        ({"max_replicas": 2, "min_replicas": 3}, "max_replicas"),
        ({"idle_seconds": 900}, "idle_seconds"),
        ({"idle_action": "sell"}, "idle_action"),
        ({"max_replicas": 2, "max_fgpu": "0.5"}, "max_fgpu"),
        ({"speed": 3}, "speed"),
    ],
)
def test_bad_settings_are_refused(api: APIClient, deployment: Deployment, body: dict[str, Any], field: str) -> None:
    assert field in errors_of(api.patch(address(deployment), body, format="json"))


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"metric": "mood", "target": 1}, "metric"),
        ({"metric": "outstanding", "target": -1}, "target"),
        ({"metric": "outstanding", "target": "nan"}, "target"),
        ({"metric": "gpu", "target": 50}, "metric"),
        ({"metric": "query", "target": 5, "query": "up"}, "metric"),
        ({"metric": "outstanding"}, "target"),
    ],
)
def test_bad_rules_are_refused(api: APIClient, deployment: Deployment, body: dict[str, Any], field: str) -> None:
    assert field in errors_of(api.post(address(deployment, "rules/"), body, format="json"))


def test_a_rule_of_another_deployment_is_not_found(api: APIClient, deployment: Deployment) -> None:
    other = make_deployment()
    rule = ScalingRule.objects.create(deployment=other, metric="outstanding", target=1)
    assert api.patch(address(deployment, f"rules/{rule.pk}/"), {"paused": True}, format="json").status_code == 404
    assert client_of(make_user()).get(address(deployment)).status_code == 404


def test_it_is_sent_to_sleep_and_woken(api: APIClient, deployment: Deployment) -> None:
    own = f"/api/v1/deployments/{deployment.pk}/"
    refused = api.post(f"{own}sleep/")
    assert (refused.status_code, "set max replicas first" in refused.content.decode()) == (400, True)
    api.patch(address(deployment), {"max_replicas": 4}, format="json")
    asleep = api.post(f"{own}sleep/").json()
    assert (asleep["replicas"], asleep["asleep_since"] is not None) == (0, True)
    awake = api.post(f"{own}wake/").json()
    assert (awake["replicas"], awake["asleep_since"]) == (1, None)
    assert client_of(make_user()).post(f"{own}sleep/").status_code == 404
