"""Rollouts by steps over the API: their settings, how far one is, and its next step before time."""

from typing import Any

import pytest
from redis.exceptions import RedisError
from rest_framework.test import APIClient

from accounts.models import AuditEntry
from deployments import figures
from deployments.models import Deployment
from deployments.tests.making import make_deployment
from deployments.tests.rolling import answer, begun, grow
from tests.api import client_of
from tests.factories import make_project, make_user

pytestmark = pytest.mark.django_db
SETTINGS: dict[str, Any] = {
    **{"strategy": "canary", "canary_steps": [1, 20], "step_seconds": 60, "max_error_points": 0.5},
    "max_p95_ratio": 2.0,
}


def address(deployment: Deployment, rest: str = "") -> str:
    return f"/api/v1/deployments/{deployment.pk}/{rest}"


def shown(api: APIClient, deployment: Deployment) -> Any:
    """Return the deployment as the API shows it, the same in the list as by itself."""
    found = api.get(address(deployment)).json()
    assert api.get("/api/v1/deployments/").json()["results"] == [found]
    return found


def test_settings_of_rollouts_are_changed_and_shown() -> None:
    deployment = make_deployment()
    api = client_of(deployment.owner)
    changed = api.patch(address(deployment), SETTINGS, format="json").json()
    assert changed.items() >= SETTINGS.items()
    assert shown(api, deployment) == changed
    assert changed["rollout"] is None


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"strategy": "fast"}, "strategy"),
        ({"canary_steps": []}, "canary_steps"),
        ({"canary_steps": [50, 5]}, "canary_steps"),
        ({"canary_steps": list(range(1, 12))}, "canary_steps"),
        ({"step_seconds": 9}, "step_seconds"),
        ({"max_error_points": 101}, "max_error_points"),
        ({"max_error_points": "nan"}, "max_error_points"),
        ({"max_p95_ratio": 0.5}, "max_p95_ratio"),
    ],
)
def test_wrong_settings_of_rollouts_are_refused(wrong: dict[str, Any], field: str) -> None:
    deployment = make_deployment()
    refused = client_of(deployment.owner).patch(address(deployment), SETTINGS | wrong, format="json")
    assert (refused.status_code, set(refused.json()["errors"])) == (400, {field})
    deployment.refresh_from_db()
    assert deployment.strategy == "rolling"


def test_a_rollout_shows_both_revisions_side_by_side() -> None:
    deployment = begun()
    answer(deployment, 1, 190, 19)
    answer(deployment, 2, 10, 1, seconds=0.5)
    rollout = shown(client_of(deployment.owner), deployment)["rollout"]
    assert (
        rollout.items()
        >= {
            **{"strategy": "canary", "step": 1, "steps": [5, 50], "percent": 5, "old_revision": 1, "new_revision": 2},
            "words": "Revision 2 gets 5 % of the requests.",
        }.items()
    )
    assert rollout["begun_at"]
    assert (rollout["old"]["requests"], rollout["old"]["errors"], rollout["old"]["error_percent"]) == (190, 19, 10.0)
    assert (rollout["new"]["requests"], rollout["new"]["error_percent"]) == (10, 10.0)
    assert rollout["old"]["p95_seconds"] == pytest.approx(0.1, rel=0.1)
    assert rollout["new"]["p95_seconds"] == pytest.approx(0.5, rel=0.1)


def test_a_rollout_is_shown_without_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = begun(2, "blue_green")

    def unreachable(pk: str) -> None:
        raise RedisError

    monkeypatch.setattr(figures, "revision_totals", unreachable)
    rollout = shown(client_of(deployment.owner), deployment)["rollout"]
    assert (rollout["percent"], rollout["steps"], rollout["old"], rollout["new"]) == (100, [100], None, None)


def test_a_step_is_promoted_over_the_api() -> None:
    deployment = begun()
    api = client_of(deployment.owner)
    promoted = api.post(address(deployment, "promote/")).json()["rollout"]
    assert (promoted["step"], promoted["percent"], promoted["begun_at"]) == (2, 5, None)
    assert promoted["new"]["requests"] == 0
    refused = api.post(address(deployment, "promote/"))
    assert (refused.status_code, "when these are healthy" in refused.content.decode()) == (400, True)
    grow(deployment)
    assert shown(api, deployment)["rollout"]["percent"] == 50
    assert api.post(address(deployment, "promote/"), {"to_all": True}, format="json").json()["rollout"] is None
    assert api.post(address(deployment, "promote/"), {"to": 5}, format="json").status_code == 400


def test_a_rollback_ends_a_rollout() -> None:
    deployment = begun()
    back = client_of(deployment.owner).post(address(deployment, "rollback/")).json()
    assert (back["revision"]["number"], back["rollout"]) == (1, None)


def test_managers_promote_and_members_look() -> None:
    member, manager = make_user(), make_user()
    deployment = begun()
    Deployment.objects.update(project=make_project(deployment.owner, member, managers=[manager]))
    assert shown(client_of(member), deployment)["rollout"]["percent"] == 5
    assert client_of(member).post(address(deployment, "promote/")).status_code == 404
    assert client_of(manager).post(address(deployment, "promote/")).status_code == 200
    assert AuditEntry.objects.filter(action="promote", actor=manager).exists()
