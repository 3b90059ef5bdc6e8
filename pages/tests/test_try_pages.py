"""The page on which a deployment is tried: who gets it, what its scripts may reach, and the token that it hands out."""

import pytest
from django.test import Client

from accounts.models import User
from deployments import services
from deployments.addresses import origin
from deployments.models import Deployment, DeploymentToken, RuntimeVariant
from deployments.tests.making import make_deployment, revision_request
from proxy.authorization.signing import digest
from tests.factories import make_project, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner() -> User:
    """Whose deployments they are."""
    return make_user()


@pytest.fixture
def pages(client: Client, owner: User) -> Client:
    """The browser of the owner."""
    client.force_login(owner)
    return client


def address(deployment: Deployment, rest: str = "") -> str:
    return f"/deployments/{deployment.pk}/try/{rest}"


def connects(pages: Client, path: str) -> list[str]:
    """Return what the page's scripts may connect to."""
    policy = pages.get(path)["Content-Security-Policy"]
    return next(part.split()[1:] for part in policy.split("; ") if part.startswith("connect-src"))


def test_its_scripts_reach_the_shown_deployments_alone(pages: Client, owner: User) -> None:
    first, second, third = (make_deployment(owner, name=name) for name in ("chat", "other", "third"))
    foreign = make_deployment()
    path = address(first, f"?as=chat&with={second.pk}&with={foreign.pk}&with={first.pk}&with=%00")
    assert connects(pages, address(first)) == ["'self'", origin(first)]
    assert connects(pages, path) == ["'self'", origin(first), origin(second)]
    assert connects(pages, f"/deployments/{first.pk}/") == ["'self'"]
    targets = pages.get(path).context["targets"]
    assert [target["name"] for target in targets] == ["chat", "other"]
    assert pages.get(path).context["offered"] == [third]


def test_the_runtime_decides_between_chat_and_form(pages: Client, owner: User) -> None:
    variant = RuntimeVariant.objects.get(name="vllm")
    chat = make_deployment(owner, name="chat", revision=revision_request(variant=variant))
    model = make_deployment(owner, name="model")
    assert [pages.get(address(each)).context["kind"] for each in (chat, model)] == ["chat", "request"]
    assert pages.get(address(model, "?as=chat")).context["kind"] == "chat"
    assert pages.get(address(chat, "?as=request")).context["kind"] == "request"


def test_a_token_is_handed_out_once_by_post(pages: Client, owner: User) -> None:
    deployment = make_deployment(owner)
    assert pages.get(address(deployment, "token/")).status_code == 405
    answer = pages.post(address(deployment, "token/"))
    assert digest(answer.json()["token"]) == DeploymentToken.objects.get().digest
    assert "no-store" in answer["Cache-Control"]
    assert answer.json()["token"] not in pages.get(address(deployment)).content.decode()
    assert "Try it" in pages.get(f"/deployments/{deployment.pk}/").content.decode()


def test_members_try_it_and_strangers_do_not(client: Client, owner: User) -> None:
    member = make_user()
    deployment = make_deployment(owner, project=make_project(owner, member))
    for user, status in ((member, 200), (make_user(), 404)):
        client.force_login(user)
        assert client.get(address(deployment)).status_code == status
        assert client.post(address(deployment, "token/")).status_code == status


def test_an_ended_deployment_cannot_be_tried(pages: Client, owner: User) -> None:
    deployment = make_deployment(owner)
    services.end(deployment, actor=owner)
    assert pages.get(address(deployment)).status_code == 404
    assert pages.post(address(deployment, "token/")).status_code == 404


def test_without_an_address_the_page_says_so(pages: Client, owner: User, settings: object) -> None:
    deployment = make_deployment(owner)
    settings.COMPUTE_APPS_DOMAIN = ""  # type: ignore[attr-defined]
    answer = pages.get(address(deployment))
    assert "no address yet" in answer.content.decode()
    assert connects(pages, address(deployment)) == ["'self'"]
