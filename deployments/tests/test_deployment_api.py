"""Deployments over the API: made, changed, rolled out and ended, each by whom it is theirs to."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework.test import APIClient

from accounts.models import AuditEntry, User
from deployments import services
from deployments.models import Deployment, DeploymentToken, ReplicaHealth, Revision
from deployments.replicas.reconciliation import reconcile
from deployments.tests.making import make_deployment, revision_request
from deployments.tests.serving import make_replica
from deployments.usage import metering
from folders.models import Folder
from proxy.authorization.signing import digest
from proxy.budgets import TokenUse
from resources import clock
from resources.amounts.units import GIB, MIB
from resources.models import Host
from sessions.lifecycle import Reason, Status
from tests.api import client_of
from tests.factories import make_folder, make_host, make_image, make_policy, make_project, make_root, make_user

URL = "/api/v1/deployments/"
pytestmark = pytest.mark.django_db


@pytest.fixture
def owner() -> User:
    make_image(reference="team/llm:1", environment="LLM")
    make_host(gpus=1)
    return make_user()


@pytest.fixture
def api(owner: User) -> APIClient:
    return client_of(owner)


def body(**overrides: Any) -> dict[str, Any]:
    """Return the body of a deployment of one replica."""
    return {"name": "chat", "image": "team/llm:1", "command": "serve", "cpu": 2, "memory": "4g"} | overrides


def address(deployment: Deployment | str, rest: str = "") -> str:
    return f"{URL}{deployment if isinstance(deployment, str) else deployment.pk}/{rest}"


def make_weights(owner: User) -> Folder:
    """Return a folder of the owner's that sessions on the host can mount."""
    return make_folder(owner, name="weights", root=make_root(Host.objects.get()))


def test_a_deployment_is_made_with_its_first_revision(api: APIClient, owner: User) -> None:
    folder = make_weights(owner)
    asked = body(variant="vllm", fgpu="0.5", env={"SEED": "7"}, model_folder={"folder": "weights"}, replicas=2)
    asked |= {"health": {"start_seconds": 600}, "note": "first", "sticky": "cookie", "public": False}
    asked |= {"allowed_origins": ["https://page.example"]}
    del asked["command"]
    answer = api.post(URL, asked, format="json")
    assert answer.status_code == 201, answer.content
    shown = answer.json()
    assert {**shown, **shown["revision"]}.items() >= {
        **{"name": "chat", "owner": owner.email, "project": None, "replicas": 2, "ready": 0, "state": "STARTING"},
        **{"number": 1, "variant": "vllm", "port": 8000, "cpu": 2, "memory": 4 * GIB, "shared_memory": 64 * MIB},
        **{"fgpu": "0.5", "env": {"SEED": "7"}, "note": "first", "is_current": True, "sticky": "cookie"},
        **{"allowed_origins": ["https://page.example"]},
    }.items()
    assert shown["revision"]["command"].startswith("exec vllm serve")
    assert (shown["revision"]["health"]["path"], shown["revision"]["health"]["start_seconds"]) == ("/health", 600)
    [mount] = shown["revision"]["mounts"]
    assert (mount["folder"], mount["path"], mount["model"], mount["read_only"]) == (folder.pk, "/srv/model", True, True)
    assert shown["url"].startswith("http") == bool(shown["url"])
    assert api.get(address(shown["id"])).json() == shown


@pytest.mark.parametrize(
    ("wrong", "fields"),
    [
        ({"name": "Chat_1"}, {"name"}),
        ({"name": "a--b"}, {"name"}),
        ({"image": "team/other:1"}, {"image"}),
        ({"image": None}, {"image"}),
        ({"variant": "nothing"}, {"variant"}),
        ({"command": ""}, {"command"}),
        ({"port": 80}, {"port"}),
        ({"port": 70000}, {"port"}),
        ({"cpu": 0}, {"cpu"}),
        ({"memory": "much"}, {"memory"}),
        ({"fgpu": "0.005"}, {"fgpu"}),
        ({"env": {"1X": "y"}}, {"env"}),
        ({"env": {"LD_PRELOAD": "x"}}, {"env"}),
        ({"model_folder": {"folder": "none"}}, {"model_folder"}),
        ({"mounts": [{"folder": "none"}]}, {"mounts"}),
        ({"health": {"path": "health"}}, {"health.path"}),
        ({"health": {"retries": 0}}, {"health.retries"}),
        ({"health": {"timeout_seconds": 9, "interval_seconds": 3}}, {"health.timeout_seconds"}),
        ({"health": {"kind": "grpc"}}, {"health.kind"}),
        ({"replicas": 65}, {"replicas"}),
        ({"replicas": -1}, {"replicas"}),
        ({"max_surge": 0, "max_unavailable": 0}, {"max_surge"}),
        ({"sticky": "header:Cookie"}, {"sticky"}),
        ({"sticky": "ip"}, {"sticky"}),
        ({"queue": -1}, {"queue"}),
        ({"allowed_origins": ["https://page.example", "*"]}, {"allowed_origins"}),
        ({"allowed_origins": ["https://page.example:443"]}, {"allowed_origins"}),
        ({"resource_group": "none"}, {"resource_group"}),
        ({"project": "none"}, {"project"}),
        ({"note": "x" * 201}, {"note"}),
        ({"weight": 5}, {"weight"}),
        ({"image": "team/other:1", "cpu": 0, "name": "-"}, {"cpu", "name"}),
        ({"image": "team/other:1", "project": "none", "mounts": [{"folder": "x"}]}, {"image", "project", "mounts"}),
    ],
)
def test_bad_input_is_refused_at_its_field(api: APIClient, wrong: dict[str, Any], fields: set[str]) -> None:
    answer = api.post(URL, body(**wrong), format="json")
    assert answer.status_code == 400
    assert set(answer.json()["errors"]) == fields, answer.content
    assert not Deployment.objects.exists()


def test_a_policy_that_forbids_public_apps_forbids_public_deployments(api: APIClient, owner: User) -> None:
    owner.policy = make_policy(allow_public_apps=False)
    owner.save()
    assert set(api.post(URL, body(public=True), format="json").json()["errors"]) == {"public"}
    made = api.post(URL, body(), format="json").json()
    answer = api.patch(address(made["id"]), {"public": True}, format="json")
    assert (answer.status_code, set(answer.json()["errors"])) == (400, {"public"})


def test_a_name_is_taken_until_its_deployment_ends(api: APIClient) -> None:
    first = api.post(URL, body(), format="json").json()
    assert set(api.post(URL, body(), format="json").json()["errors"]) == {"name"}
    assert api.post(address(first["id"], "end/")).json()["state"] == "ENDED"
    assert api.post(address(first["id"], "end/")).status_code == 200
    second = api.post(URL, body(), format="json").json()
    assert [each["id"] for each in api.get(URL).json()["results"]] == [second["id"]]
    assert [each["id"] for each in api.get(f"{URL}?ended=true").json()["results"]] == [first["id"]]


def test_a_repeated_request_makes_one_deployment(api: APIClient) -> None:
    answers = [api.post(URL, body(), format="json", headers={"Idempotency-Key": "once"}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json()["id"] == answers[1].json()["id"] == Deployment.objects.get().pk


def test_settings_and_replicas_change_together_or_not(api: APIClient, owner: User) -> None:
    deployment = make_deployment(owner)
    changed = api.patch(address(deployment), {"replicas": 3, "public": True, "queue": 5}, format="json").json()
    assert (changed["replicas"], changed["public"], changed["queue"]) == (3, True, 5)
    refused = api.patch(address(deployment), {"replicas": 4, "max_surge": 0}, format="json")
    assert (refused.status_code, set(refused.json()["errors"])) == (400, {"max_surge"})
    owner.policy = make_policy(max_sessions=3)
    owner.save()
    refused = api.patch(address(deployment), {"queue": 6, "replicas": 5}, format="json")
    assert (refused.status_code, set(refused.json()["errors"])) == (400, {"replicas"})
    assert api.get(address(deployment)).json() == changed


def test_a_revision_has_what_the_current_one_has(api: APIClient, owner: User) -> None:
    make_weights(owner)
    asked = body(variant="vllm", env={"A": "1"}, model_folder={"folder": "weights"}, health={"retries": 7})
    first = api.post(URL, asked | {"command": "mine"}, format="json").json()
    answer = api.post(address(first["id"], "revisions/"), {"fgpu": "0.25", "note": "smaller"}, format="json")
    assert answer.status_code == 201, answer.content
    second, before = answer.json(), first["revision"]
    own = ("number", "fgpu", "note", "created_at", "is_current")
    assert {key: second[key] for key in before if key not in own} == {
        key: before[key] for key in before if key not in own
    }
    assert (second["number"], second["fgpu"], second["note"], second["is_current"]) == (2, "0.25", "smaller", True)
    other = api.post(address(first["id"], "revisions/"), {"variant": "triton", "env": {}}, format="json").json()
    assert (other["port"], other["health"]["path"], other["health"]["retries"]) == (8000, "/v2/health/ready", 7)
    assert other["command"].startswith("exec tritonserver")
    assert other["env"] == {}
    numbers = [
        (each["number"], each["is_current"]) for each in api.get(address(first["id"], "revisions/")).json()["results"]
    ]
    assert numbers == [(3, True), (2, False), (1, False)]


def test_a_deleted_folder_is_an_error_at_its_field(api: APIClient, owner: User) -> None:
    folder = make_weights(owner)
    made = api.post(URL, body(model_folder={"folder": "weights"}), format="json").json()
    folder.delete()
    refused = api.post(address(made["id"], "revisions/"), {"note": "again"}, format="json")
    assert (refused.status_code, set(refused.json()["errors"])) == (400, {"model_folder"})
    mended = api.post(address(made["id"], "revisions/"), {"model_folder": None}, format="json")
    assert mended.status_code == 201, mended.content
    assert mended.json()["mounts"] == []


def test_revisions_are_activated_and_rolled_back(api: APIClient, owner: User) -> None:
    deployment = make_deployment(owner)
    assert set(api.post(address(deployment, "rollback/")).json()["errors"]) <= {"non_field_errors"}
    kept = api.post(address(deployment, "revisions/"), {"cpu": 2, "activate": False}, format="json").json()
    assert (kept["number"], kept["is_current"]) == (2, False)
    active = api.post(address(deployment, "revisions/2/activate/")).json()
    assert (active["revision"]["number"], active["previous_revision"]) == (2, 1)
    back = api.post(address(deployment, "rollback/")).json()
    assert (back["revision"]["number"], back["previous_revision"]) == (1, 2)
    assert api.post(address(deployment, "revisions/9/activate/")).status_code == 404


def test_a_secret_is_shown_once_and_opens_until_revoked(api: APIClient, owner: User) -> None:
    deployment = make_deployment(owner)
    asked = {"name": "shop", "days": 30, "rate_per_minute": 60}
    refused = api.post(address(deployment, "tokens/"), asked, format="json", headers={"Idempotency-Key": "k"})
    assert refused.status_code == 400
    made = api.post(address(deployment, "tokens/"), asked, format="json").json()
    stored = DeploymentToken.objects.get()
    assert stored.digest == digest(made["secret"])
    assert stored.expires_at
    [listed] = api.get(address(deployment, "tokens/")).json()["results"]
    assert listed == {key: value for key, value in made.items() if key != "secret"}
    for wrong in ({"name": ""}, {"name": "x", "days": 0}, {"name": "x", "rate_per_minute": -1}, {"name": "x", "y": 1}):
        assert api.post(address(deployment, "tokens/"), wrong, format="json").status_code == 400
    other = make_deployment(owner, name="other")
    assert api.delete(address(other, f"tokens/{stored.pk}/")).status_code == 404
    assert api.delete(address(deployment, f"tokens/{stored.pk}/")).status_code == 204
    assert not DeploymentToken.objects.valid().exists()


def test_limits_of_a_token_change_and_its_use_is_shown(api: APIClient, owner: User) -> None:
    deployment = make_deployment(owner)
    made = api.post(address(deployment, "tokens/"), {"name": "shop", "monthly_tokens": 100}, format="json").json()
    assert (made["monthly_requests"], made["monthly_tokens"], made["used_requests"]) == (0, 100, 0)
    metering.store({made["id"]: TokenUse(3, 20, 30)})
    place = address(deployment, f"tokens/{made['id']}/")
    changed = api.patch(place, {"monthly_requests": 5}, format="json").json()
    used = ("used_requests", "used_prompt_tokens", "used_completion_tokens")
    assert [changed[name] for name in ("monthly_requests", "monthly_tokens", *used)] == [5, 100, 3, 20, 30]
    assert "monthly_requests" in api.patch(place, {"monthly_requests": -1}, format="json").json()["errors"]
    [row] = api.get(address(deployment, "usage/")).json()["results"]
    month = f"{clock.now():%Y-%m}-01"
    assert row == {
        **{"token": made["id"], "name": "shop", "month": month},
        **{"requests": 3, "prompt_tokens": 20, "completion_tokens": 30},
    }
    metering.store({deployment.pk: TokenUse(2, 1, 1)})
    [without, _] = api.get(address(deployment, "usage/")).json()["results"]
    assert (without["token"], without["name"], without["requests"]) == (None, None, 2)
    api.delete(place)
    refused = api.patch(place, {"monthly_requests": 6}, format="json")
    assert (refused.status_code, refused.json()["detail"]) == (400, "This token is revoked.")
    assert api.get(address(deployment, "tokens/")).json()["results"][0]["used_requests"] == 3


def test_the_three_facts_of_replicas_are_apart(api: APIClient, owner: User) -> None:
    deployment = make_deployment(owner, replicas=2)
    make_replica(deployment)
    make_replica(deployment, draining_since=timezone.now())
    make_replica(deployment, health=ReplicaHealth.UNHEALTHY.value, health_detail="HTTP 500")
    ended = make_replica(deployment)
    ended.session.move_to(Status.ERROR, Reason.OUT_OF_MEMORY)
    rows = api.get(address(deployment, "replicas/")).json()["results"]
    facts = [(each["process"], each["health"], each["traffic"]) for each in rows]
    assert facts == [
        ("RUNNING", "healthy", "serving"),
        ("RUNNING", "healthy", "draining"),
        ("RUNNING", "unhealthy", "none"),
    ]
    shown = api.get(address(deployment)).json()
    assert (shown["ready"], shown["updated"], shown["total"]) == (1, 2, 3)


def test_only_the_owner_reads_command_and_variables(api: APIClient, owner: User) -> None:
    member, manager = make_user(), make_user()
    project = make_project(owner, member, managers=[manager])
    request = revision_request(environment={"HF_TOKEN": "secret"}, command="serve --key secret")
    deployment = make_deployment(owner, project=project, revision=request)
    Deployment.objects.update(problem="A replica has failed.\nits output has a secret")
    for user in (member, manager):
        for answer in (
            client_of(user).get(address(deployment)),
            client_of(user).get(address(deployment, "revisions/")),
        ):
            assert answer.status_code == 200
            assert "secret" not in answer.content.decode()
    by_superadmin = client_of(make_user(is_superuser=True)).get(address(deployment)).json()
    assert (by_superadmin["revision"]["env"], by_superadmin["revision"]["command"]) == (None, None)
    assert "secret" in by_superadmin["problem"]
    assert api.get(address(deployment)).json()["revision"]["env"] == {"HF_TOKEN": "secret"}


def test_what_replicas_run_is_for_their_owner_to_say(owner: User) -> None:
    member, manager = make_user(), make_user()
    deployment = make_deployment(owner, project=make_project(owner, member, managers=[manager]))
    asked = {"command": "cat ~/.ssh/id"}
    assert client_of(manager).post(address(deployment, "revisions/"), asked, format="json").status_code == 404
    assert client_of(manager).patch(address(deployment), {"replicas": 2}, format="json").status_code == 200
    assert client_of(member).patch(address(deployment), {"replicas": 3}, format="json").status_code == 404
    assert Revision.objects.count() == 1
    assert AuditEntry.objects.filter(action="scale").exists()


@pytest.mark.parametrize("method", ["get", "patch"])
def test_strangers_are_told_of_no_deployment(owner: User, method: str) -> None:
    deployment = make_deployment(owner)
    stranger = client_of(make_user())
    assert getattr(stranger, method)(address(deployment), {}, format="json").status_code == 404
    for rest in ("revisions/", "replicas/", "tokens/", "events/"):
        assert stranger.get(address(deployment, rest)).status_code == 404
    assert stranger.get(URL).json()["results"] == []
    assert client_of(None).get(URL).status_code == 401


def test_lists_take_a_constant_number_of_queries(api: APIClient, owner: User) -> None:
    counts = []
    for name in ("one", "two", "three"):
        deployment = make_deployment(owner, name=name)
        make_replica(deployment)
        services.new_revision(deployment, revision_request(), actor=owner)
        with CaptureQueriesContext(connection) as queries:
            api.get(URL)
        counts.append(len(queries))
    assert counts[0] == counts[1] == counts[2]


def test_runtime_variants_are_listed(api: APIClient) -> None:
    names = [each["name"] for each in api.get("/api/v1/runtime-variants/").json()["results"]]
    assert {"vllm", "llama.cpp", "mlflow", "custom"} <= set(names)


def test_events_say_what_was_done(api: APIClient, owner: User) -> None:
    deployment = make_deployment(owner)
    api.patch(address(deployment), {"replicas": 2}, format="json")
    api.post(address(deployment, "restart/"))
    what = [each["what"] for each in api.get(address(deployment, "events/")).json()["results"]]
    assert what == ["Restarted.", "Scaled from 1 to 2 replicas.", "Created with 1 replica."]


def test_replicas_are_found_among_sessions_by_their_kind() -> None:
    deployment = make_deployment()
    reconcile(deployment.pk)
    api = client_of(deployment.owner)
    for kind, count in (("replica", 1), ("batch", 0)):
        assert len(api.get("/api/v1/sessions/", {"kind": kind}).json()["results"]) == count
    assert api.get("/api/v1/sessions/", {"kind": "other"}).status_code == 400
