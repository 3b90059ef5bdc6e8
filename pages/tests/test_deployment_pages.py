"""The pages of deployments: what they show to whom, and what their forms and buttons do."""

from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import User
from deployments import addresses, figures, services
from deployments.access import tokens
from deployments.models import Deployment, DeploymentState, DeploymentToken, ReplicaHealth, Revision, RuntimeVariant
from deployments.tests.making import make_deployment, revision_request
from deployments.tests.serving import make_replica
from deployments.usage import metering
from pages.deployments.tabs import DeploymentTab
from proxy.authorization.control_plane import DURATION_BOUNDS, ServiceFigures
from proxy.authorization.signing import digest
from proxy.budgets import TokenUse
from resources.amounts.units import GIB
from resources.models import Host, Image, ResourceGroup
from sessions.lifecycle import Kind, Reason, Status
from sessions.models import Session
from tests.api import client_of
from tests.factories import make_folder, make_host, make_image, make_project, make_root, make_user

pytestmark = pytest.mark.django_db
LIST = "/deployments/"


@pytest.fixture
def owner() -> User:
    make_image(environment="LLM", reference="team/llm:1")
    make_host(gpus=1)
    return make_user()


@pytest.fixture
def pages(client: Client, owner: User) -> Client:
    client.force_login(owner)
    return client


def address(deployment: Deployment, rest: str = "") -> str:
    return f"{LIST}{deployment.pk}/{rest}"


def text_of(client: Client, path: str, **headers: str) -> str:
    answer = client.get(path, headers=headers)
    assert answer.status_code == 200
    return answer.content.decode()


def all_tabs(client: Client, deployment: Deployment) -> str:
    return "".join(text_of(client, address(deployment, f"?tab={tab}")) for tab in DeploymentTab)


def filled(**overrides: Any) -> dict[str, Any]:
    """Return what the form of a new deployment sends."""
    fields = {
        **{"name": "chat", "replicas": 2, "command": "serve", "cpu": 2, "memory": "8g", "shared_memory": "64m"},
        **{"fgpu": "0.5", "start_seconds": 300, "interval_seconds": 5, "timeout_seconds": 2, "retries": 3},
        "image": Image.objects.get(reference="team/llm:1").pk,
        "resource_group": ResourceGroup.objects.get().pk,
    }
    return fields | overrides


def test_a_list_without_deployments_says_what_they_are(pages: Client) -> None:
    page = text_of(pages, LIST)
    assert "Nothing is deployed yet" in page
    assert "/deployments/new/" in page
    assert "No deployment has ended yet" in text_of(pages, f"{LIST}?ended=1")


def test_the_list_shows_state_replicas_and_revision(pages: Client, owner: User) -> None:
    deployment = make_deployment(owner, replicas=2, is_public=True)
    make_replica(deployment)
    Deployment.objects.update(state=DeploymentState.DEGRADED, problem="A replica waits: no GPU is free\nmore")
    page = text_of(pages, LIST, HX_Request="true")
    assert "<html" not in page
    for text in ("Serves with fewer replicas", "1 / 2", "public", "A replica waits: no GPU is free"):
        assert text in page
    services.end(deployment, actor=owner)
    assert deployment.pk not in text_of(pages, LIST)
    assert deployment.pk in text_of(pages, f"{LIST}?ended=1")


def test_a_deployment_is_made_by_its_form(pages: Client, owner: User) -> None:
    folder = make_folder(owner, name="weights", root=make_root(Host.objects.get()))
    other = make_folder(owner, name="data", root=folder.root)
    assert 'name="variant"' in text_of(pages, f"{LIST}new/")
    asked = filled(environment="SEED=7\nNAME=a=b\n", model_folder=folder.pk, folders=[folder.pk, other.pk])
    answer = pages.post(f"{LIST}new/", asked)
    deployment = Deployment.objects.get()
    assert answer.headers["Location"] == address(deployment)
    revision = deployment.revision
    assert revision
    assert (revision.command, revision.memory, revision.fgpu) == ("serve", 8 * GIB, 500)
    assert revision.environment == {"SEED": "7", "NAME": "a=b"}
    assert list(revision.mounts.values_list("folder_name", "is_model", "is_read_only").order_by("is_model")) == [
        ("data", False, False),
        ("weights", True, True),
    ]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"name": "Chat!"}, "name"),
        ({"name": ""}, "name"),
        ({"command": ""}, "command"),
        ({"environment": "no variable"}, "environment"),
        ({"port": 80}, "port"),
        ({"memory": "8"}, "memory"),
        ({"shared_memory": "9g"}, "shared_memory"),
        ({"fgpu": "x"}, "fgpu"),
        ({"image": 0}, "image"),
        ({"replicas": 65}, "replicas"),
        ({"health_path": "health"}, "health_path"),
        ({"timeout_seconds": 9}, "timeout_seconds"),
        ({"resource_group": 0}, "resource_group"),
    ],
)
def test_what_is_wrong_in_the_form_stands_at_its_field(pages: Client, wrong: dict[str, Any], field: str) -> None:
    answer = pages.post(f"{LIST}new/", filled(**wrong))
    assert answer.status_code == 422
    assert list(answer.context["form"].errors) == [field]
    assert f'id="id_{field}_error"' in answer.content.decode()
    assert not Deployment.objects.exists()


def test_a_wrong_name_is_told_with_the_other_fields(pages: Client) -> None:
    answer = pages.post(f"{LIST}new/", filled(name="Chat!", memory="8", port=80))
    assert {"name", "memory"} <= set(answer.context["form"].errors)


def test_a_variant_fills_what_the_form_leaves_out(pages: Client) -> None:
    variants = pages.get(f"{LIST}new/").context["variants"]
    [chosen] = [pk for pk, fields in variants.items() if fields["port"] == "30000"]
    pages.post(f"{LIST}new/", filled(variant=chosen, command=""))
    revision = Revision.objects.get()
    assert (revision.port, revision.health_path) == (30000, "/health")
    assert "sglang" in revision.command


def test_a_revision_begins_with_the_current_one(pages: Client, owner: User) -> None:
    deployment = make_deployment(owner, revision=revision_request(environment={"A": "1"}))
    form = pages.get(address(deployment, "revisions/new/")).context["form"]
    sent = {name: form[name].value() for name in form.fields if form[name].value() is not None}
    sent |= {"environment": "A=2", "memory": "2g", "shared_memory": "64m", "fgpu": "0", "note": "second"}
    answer = pages.post(address(deployment, "revisions/new/"), {k: v for k, v in sent.items() if v is not False})
    assert answer.status_code == 302, answer.context["form"].errors
    first, second = Revision.objects.order_by("number")
    assert (second.environment, second.command, second.port, second.note) == ({"A": "2"}, first.command, 8000, "second")
    deployment.refresh_from_db()
    assert deployment.revision == second


def test_the_page_keeps_process_health_and_traffic_apart(pages: Client, owner: User) -> None:
    deployment = make_deployment(owner, replicas=3)
    rows = [
        make_replica(deployment),
        make_replica(deployment, draining_since=timezone.now()),
        make_replica(deployment, health=ReplicaHealth.UNHEALTHY.value, health_detail="HTTP 500"),
    ]
    page = text_of(pages, address(deployment), HX_Request="true")
    for text in ("gets requests", "finishes requests", "unhealthy", "HTTP 500", "1 of 3 ready"):
        assert text in page
    for replica in rows:
        assert f"/sessions/{replica.pk}/logs/" in page
        assert f"/sessions/{replica.pk}/terminal/" in page
    services.new_revision(deployment, revision_request(), actor=owner)
    assert "Revision 2 is being rolled out: 0 of 3 replicas." in text_of(pages, address(deployment))


def test_why_it_does_not_serve_is_said_with_output(pages: Client, owner: User) -> None:
    deployment = make_deployment(owner)
    Deployment.objects.update(state=DeploymentState.FAILING, problem="A replica of revision 1 has failed.\n<b>boom</b>")
    page = text_of(pages, address(deployment))
    assert "A replica of revision 1 has failed." in page
    assert "&lt;b&gt;boom&lt;/b&gt;" in page


def test_buttons_scale_restart_activate_and_roll_back(pages: Client, owner: User) -> None:
    deployment = make_deployment(owner)
    services.new_revision(deployment, revision_request(), actor=owner)

    def press(rest: str, **data: Any) -> str:
        pages.post(address(deployment, rest), data)
        deployment.refresh_from_db()
        return text_of(pages, address(deployment))

    assert "3 replicas are wanted now." in press("scale/", replicas=3)
    assert deployment.replicas == 3
    for wrong in ("-1", "65", "x", "", "99999999"):
        assert "Choose a number from 0 to 64." in press("scale/", replicas=wrong)
    assert deployment.replicas == 3
    press("rollback/")
    assert deployment.revision == deployment.revisions.get(number=1)
    press("revisions/2/activate/")
    assert deployment.revision == deployment.revisions.get(number=2)
    press("restart/")
    assert deployment.restarted_at
    asked = text_of(pages, address(deployment, "end/"))
    assert "This cannot be undone. Everything inside the containers is deleted, except for data folders." in asked
    assert "0 of 0 ready" not in press("end/")
    assert deployment.ended_at
    assert "This deployment has ended." in press("restart/")


def test_a_tokens_secret_stands_on_one_page(pages: Client, owner: User) -> None:
    deployment = make_deployment(owner)
    asked = {"token-name": "shop", "token-days": "", "token-rate_per_minute": "60"}
    answer = pages.post(address(deployment, "tokens/"), asked)
    token = DeploymentToken.objects.get()
    secret = answer.context["made"].secret
    assert token.digest == digest(secret)
    assert secret in answer.content.decode()
    assert secret not in all_tabs(pages, deployment)
    refused = pages.post(address(deployment, "tokens/"), asked | {"token-name": ""})
    assert (refused.status_code, list(refused.context["token_form"].errors)) == (422, ["name"])
    pages.post(address(deployment, f"tokens/{token.pk}/revoke/"))
    assert "revoked" in text_of(pages, address(deployment))
    assert not DeploymentToken.objects.valid().exists()


def test_budgets_are_set_and_their_use_is_shown(pages: Client, owner: User) -> None:
    deployment = make_deployment(owner)
    pages.post(address(deployment, "tokens/"), {"token-name": "shop", "token-monthly_tokens": "100"})
    token = DeploymentToken.objects.get()
    metering.store({token.pk: TokenUse(3, 20, 30)})
    shown = text_of(pages, address(deployment, "?tab=tokens"))
    assert ("3 requests" in shown, "50 of 100 tokens of models" in shown) == (True, True)
    metering.store({deployment.pk: TokenUse(4, 5, 6)})
    [month] = pages.get(address(deployment, "?tab=tokens")).context["usage"]
    assert (month["requests"], month["tokenless_requests"], month["prompt_tokens"]) == (7, 4, 25)
    sent = {"limits-token": token.pk, "limits-monthly_requests": "5"}
    assert pages.post(address(deployment, "tokens/limits/"), sent).status_code == 302
    token.refresh_from_db()
    assert (token.monthly_requests, token.monthly_tokens) == (5, 100)
    assert "3 of 5 requests" in text_of(pages, address(deployment, "?tab=tokens"))
    refused = pages.post(address(deployment, "tokens/limits/"), sent | {"limits-monthly_requests": "-1"})
    assert (refused.status_code, list(refused.context["limits_form"].errors)) == (422, ["monthly_requests"])
    others = tokens.create_token(make_deployment(owner, name="other"), name="x", actor=owner).token
    refused = pages.post(address(deployment, "tokens/limits/"), sent | {"limits-token": others.pk})
    assert (refused.status_code, list(refused.context["limits_form"].errors)) == (422, ["token"])


def test_logs_of_all_replicas_have_a_page_of_their_own(pages: Client, owner: User) -> None:
    deployment = make_deployment(owner)
    for name, words in (("chat-1-a", "first <b>"), ("chat-1-b", "second")):
        session = make_replica(deployment).session
        Session.objects.filter(pk=session.pk).update(log_tail=words, name=name)
        session.move_to(Status.ERROR, Reason.OUT_OF_MEMORY, fields={"ended_at": timezone.now()})
    assert address(deployment, "logs/") in text_of(pages, address(deployment))
    shown = text_of(pages, address(deployment, "logs/"))
    assert "chat-1-a | first &lt;b&gt;" in shown
    one = text_of(pages, address(deployment, "logs/?replica=chat-1-b"))
    assert ("chat-1-b | second" in one, "chat-1-a | first" in one) == (True, False)
    digest = pages.get(address(deployment, "logs/")).context["log_digest"]
    assert pages.get(address(deployment, f"logs/?digest={digest}"), headers={"HX-Request": "true"}).status_code == 204
    assert pages.get(address(deployment, "logs/?replica=other")).status_code == 404
    assert pages.get(address(deployment, "logs/download/")).content == b"chat-1-a | first <b>\nchat-1-b | second\n"


def test_settings_are_saved_or_refused_at_their_field(pages: Client, owner: User) -> None:
    deployment = make_deployment(owner)
    asked = {"concurrency": 4, "queue": 7, "sticky": "cookie", "max_surge": 1, "max_unavailable": 0, "drain_seconds": 9}
    asked["allowed_origins"] = ["https://page.example"]
    asked |= {"strategy": "canary", "canary_steps": [1, 20], "step_seconds": 60}
    asked |= {"max_error_points": 0.5, "max_p95_ratio": 2.0}
    sent = {f"settings-{name}": value for name, value in asked.items()} | {"settings-canary_steps": "1, 20 %"}
    assert pages.post(address(deployment, "settings/"), sent).status_code == 302
    deployment.refresh_from_db()
    assert {name: getattr(deployment, name) for name in asked} == asked
    refused = pages.post(
        address(deployment, "settings/"),
        sent | {"settings-sticky": "ip", "settings-queue": -1, "settings-allowed_origins": "x"},
    )
    assert refused.status_code == 422
    assert set(refused.context["settings_form"].errors) == {"sticky", "queue", "allowed_origins"}
    wrongs = {"strategy": "fast", "canary_steps": "5, x", "step_seconds": 9, "max_error_points": "nan"}
    for name, value in {**wrongs, "max_p95_ratio": 0.5}.items():
        refused = pages.post(address(deployment, "settings/"), sent | {f"settings-{name}": value})
        assert (refused.status_code, set(refused.context["settings_form"].errors)) == (422, {name})
    refused = pages.post(address(deployment, "settings/"), sent | {"settings-canary_steps": "50, 5"})
    assert "each greater than the one before" in refused.content.decode()


def test_members_look_and_managers_change(client: Client, owner: User) -> None:
    member, manager = make_user(), make_user()
    project = make_project(owner, member, managers=[manager])
    request = revision_request(environment={"KEY": "hidden-value"}, command="serve --key hidden-value")
    deployment = make_deployment(owner, project=project, revision=request)
    replica = make_replica(deployment)
    tokens.create_token(deployment, name="shop", actor=owner)
    Deployment.objects.update(problem="A replica has failed.\nIts output: hidden-value")
    client.force_login(member)
    page = all_tabs(client, deployment)
    assert "hidden-value" not in page
    for rest in ("scale/", "end/", "tokens/", "tokens/limits/", "settings/", "scaling/", "revisions/new/"):
        assert f'"{address(deployment, rest)}"' not in page
    assert f"/sessions/{replica.pk}/terminal/" not in page
    assert client.post(address(deployment, "scale/"), {"replicas": 2}).status_code == 404
    client.force_login(manager)
    page = all_tabs(client, deployment)
    assert "hidden-value" not in page
    for rest in ("scale/", "tokens/", "tokens/limits/", "settings/", "scaling/"):
        assert f'"{address(deployment, rest)}"' in page
    assert address(deployment, "revisions/new/") not in page
    assert client.post(address(deployment, "scale/"), {"replicas": 2}).status_code == 302
    assert client.get(address(deployment, "revisions/new/")).status_code == 404
    client.force_login(make_user())
    assert client.get(address(deployment)).status_code == 404


def test_examples_are_those_of_the_runtime(pages: Client, owner: User) -> None:
    variant = RuntimeVariant.objects.get(name="vllm")
    chat = make_deployment(owner, revision=revision_request(variant=variant, command=""))
    page = text_of(pages, address(chat))
    for text in ("/v1/chat/completions", "from openai import OpenAI", "Authorization: Bearer gpd_...", chat.label):
        assert text in unescape(page)
    other = make_deployment(owner, name="other", is_public=True)
    page = text_of(pages, address(other))
    assert "requests.get" in unescape(page)
    assert "gpd_..." not in page


def test_figures_of_the_last_hour_are_shown(pages: Client, owner: User) -> None:
    deployment = make_deployment(owner)
    replica = make_replica(deployment)
    durations = [0] * len(DURATION_BOUNDS) + [0]
    durations[1] = 12
    served = {"deployment": deployment.pk, "session": replica.pk, "requests": 12, "errors": 2, "outstanding": 3}
    figures.store("web", [ServiceFigures(**served, durations=durations)])
    hour = pages.get(address(deployment)).context["hour"]
    assert (hour.requests, hour.errors, hour.outstanding, hour.median) == (12, 2, 3, DURATION_BOUNDS[1])
    for span, step in (("hour", 60), ("day", 900), ("week", 7200)):
        figures.store("web", [ServiceFigures(deployment=deployment.pk, session=replica.pk, outstanding=3)])
        answer = client_of(owner).get(f"/api/v1/deployments/{deployment.pk}/figures/?span={span}").json()
        assert (answer["span"], answer["step"], answer["outstanding"]) == (span, step, 3)
        assert sum(point["requests"] for point in answer["points"][-2:]) == 12
        assert answer["points"][-1]["replicas"] > 0
    assert client_of(owner).get(f"/api/v1/deployments/{deployment.pk}/figures/?span=year").status_code == 400


def test_the_page_of_a_replica_leads_to_its_deployment(pages: Client, owner: User) -> None:
    deployment = make_deployment(owner)
    replica = make_replica(deployment)
    Session.objects.filter(pk=replica.pk).update(kind=Kind.REPLICA.value, command="serve")
    page = text_of(pages, f"/sessions/{replica.pk}/")
    assert f'href="{address(deployment)}"' in page
    assert "batch session" not in page


def test_a_superadmin_gives_host_names_on_the_page(client: Client) -> None:
    deployment = make_deployment()
    path = f"/deployments/{deployment.pk}/"
    client.force_login(deployment.owner)
    assert 'id="hosts"' not in client.get(f"{path}?tab=settings").content.decode()
    assert client.post(f"{path}hosts/", {"names-hosts": "models.example.org"}).status_code == 404
    client.force_login(make_user(is_superuser=True))
    assert 'id="hosts"' in client.get(f"{path}?tab=settings").content.decode()
    refused = client.post(f"{path}hosts/", {"names-hosts": "models"})
    assert (refused.status_code, set(refused.context["hosts_form"].errors)) == (422, {"hosts"})
    given = client.post(f"{path}hosts/", {"names-hosts": "models.example.org\nb.example.org"})
    assert given["Location"].endswith("?tab=settings")
    shown = client.get(path).content.decode()
    first, *others = addresses.origins(deployment)
    assert (f'value="{first}"' in shown, all(f'href="{each}"' in shown for each in others)) == (True, True)
    assert addresses.origin(deployment) in others
    assert first in client.get("/deployments/").content.decode()
    client.post(f"{path}hosts/", {"names-hosts": ""})
    assert not deployment.hosts.exists()


def test_odd_input_is_refused_in_order(pages: Client, owner: User) -> None:
    deployment, long = make_deployment(owner, host=Host.objects.get()), "9" * 5000
    for rest, status in {
        f"placement/?revision={long}": 404,
        f"placement/?replicas={long}": 200,
        f"placement/?replicas=2&other={long}": 200,
        "placement/?revision=x": 404,
        "logs/?replica=%00": 404,
        "logs/download/?replica=a%00": 404,
        f"logs/?replica={long}": 404,
        "?tab=%00": 200,
        "try/?with=%00&as=%00": 200,
        f"revisions/{long}/activate/": 404,
        f"scaling/rules/{long}/remove/": 404,
        f"tokens/{long}/revoke/": 404,
    }.items():
        answer = pages.post(address(deployment, rest)) if rest.endswith("/") else pages.get(address(deployment, rest))
        assert answer.status_code == status, rest
    for path in (f"?page={long}", "from-folder/?model_folder=%00&path=%00", "offer/?folder=%00", "new/?folder=%00"):
        assert pages.get(f"{LIST}{path}").status_code == 200, path
    for post in ({"image": long, "model_folder": "\0", "cpu": long}, {"resource_group": "\0", "memory": f"{long}g"}):
        assert pages.post(f"{LIST}new/", filled(**post)).status_code == 422
    assert (
        pages.post(address(deployment, "scaling/rules/"), {"rule-metric": "\0", "rule-target": long}).status_code == 422
    )
    assert pages.post(address(deployment, "tokens/limits/"), {"limits-token": long}).status_code == 422
    assert pages.post(address(deployment, "settings/"), {"name": "\0", "drain_seconds": long}).status_code == 422
    assert pages.post(address(deployment, "scaling/"), {"min_replicas": long}).status_code == 422
    assert pages.post(address(deployment, "scale/"), {"replicas": long}).status_code == 302
