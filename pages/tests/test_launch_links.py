"""Links that fill the launch wizard: what they say in vain, what a session's link holds, the badge."""

from html import unescape
from http import HTTPStatus
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
import yaml
from django.test import Client

from accounts.models import User
from deployments.tests.making import make_deployment
from pages.sharing.snippets import LaunchBadge
from resources.amounts.units import GIB
from resources.models import Host, Image
from sessions.lifecycle import Kind
from sessions.models import Session
from tests.factories import (
    make_folder,
    make_group,
    make_host,
    make_image,
    make_preset,
    make_root,
    make_session,
    make_user,
    run_session,
)
from tests.web import browser_of

pytestmark = pytest.mark.django_db

REVIEW = "/sessions/launch/review/"


@pytest.fixture
def owner() -> User:
    return make_user()


@pytest.fixture
def host() -> Host:
    return make_host(group=make_group(name="lab"), gpus=1)


@pytest.fixture
def image(host: Host) -> Image:
    return make_image()


def test_a_link_leads_to_the_review_also_after_login(owner: User, image: Image) -> None:
    answer = Client().get("/launch?fgpu=0.5&name=exam", follow=True)
    assert answer.redirect_chain[0][0] == f"{REVIEW}?fgpu=0.5&name=exam"
    assert unquote(answer.redirect_chain[-1][0]).endswith(f"?next={REVIEW}?fgpu=0.5&name=exam")
    form = browser_of(owner).get("/launch?fgpu=0.5&name=exam", follow=True).context["form"]
    assert [form[name].value() for name in ("fgpu", "name")] == ["0.5", "exam"]
    assert not Session.objects.exists()


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("image=999999", "image"),
        ("group=secret", "resource_group"),
        ("other_group=secret", "other_groups"),
        ("project=secret", "project"),
        ("preset=huge", "preset"),
        ("preset=elsewhere&group=lab", "preset"),
        ("folder=nothing", "mounts"),
        ("again=aaaaaaaaaaaaaaaa", "general"),
        ("is_preemptible=maybe", "is_preemptible"),
        ("gpus=8", "general"),
    ],
)
def test_what_a_link_says_in_vain_stands_at_its_field(owner: User, image: Image, query: str, field: str) -> None:
    make_preset(name="elsewhere", group=make_group(name="other"))
    make_group(name="secret", open_to_all=False)
    make_folder(owner, root=make_root(make_host()), name="data")
    page = browser_of(owner).get(f"{REVIEW}?{query}")
    assert list(page.context["form"].link_problems) == [field]
    text = page.context["form"].link_problems[field]
    at_field = 0 if field in ("general", "project") else 1  # without projects there is no such field
    assert unescape(page.content.decode()).count(text) == 1 + at_field


def test_what_a_link_says_rightly_is_no_problem(owner: User, host: Host, image: Image) -> None:
    make_preset(name="big", cpu=4)
    make_folder(owner, root=make_root(host), name="data")
    query = f"image={image.reference}&group=lab&other_group=lab&preset=big&folder=data&is_preemptible=on&project="
    page = browser_of(owner).get(f"{REVIEW}?{query}")
    assert page.context["form"].link_problems == {}


def test_a_session_is_shared_without_secrets(owner: User, host: Host, image: Image) -> None:
    session = make_session(owner=owner, image=image, resource_group=host.group, memory=3 * GIB, fgpu=500, name="mine")
    Session.objects.update(environment={"TOKEN": "s3cret"}, command="train", kind=Kind.BATCH, time_limit="2:00:00")
    badge = browser_of(owner).get(f"/sessions/{session.pk}/share/").context["badge"]
    assert "s3cret" not in badge.link
    assert "mine" not in badge.link
    form = browser_of(make_user()).get(badge.link, follow=True).context["form"]
    assert form.link_problems == {}
    names = ("image", "resource_group", "memory", "fgpu", "command", "time_limit")
    assert [form[name].value() for name in names] == [image.pk, host.group.pk, "3 GiB", "0.5", "train", "2h"]


def test_strangers_do_not_share_a_session(image: Image) -> None:
    session = make_session(image=image)
    assert browser_of(make_user()).get(f"/sessions/{session.pk}/share/").status_code == HTTPStatus.NOT_FOUND


@pytest.mark.parametrize("name", ["badge", "badge-dark"])
def test_the_badge_is_shown_to_everybody(name: str) -> None:
    answer = Client().get(f"/launch/{name}.svg")
    assert answer["Content-Type"] == "image/svg+xml"
    assert "public" in answer["Cache-Control"]
    assert ElementTree.fromstring(answer.content).get("aria-label") == "Launch on GPU Platform"  # our own


def test_the_badge_in_three_markups() -> None:
    badge = LaunchBadge(link="https://x/launch?a=1&b=2", light="https://x/l.svg", dark="https://x/d.svg")
    assert badge.markdown == "[![Launch on GPU Platform](https://x/l.svg)](https://x/launch?a=1&b=2)"
    assert 'href="https://x/launch?a=1&amp;b=2"' in badge.html
    assert 'srcset="https://x/d.svg"' in badge.html
    assert badge.rest.splitlines()[1] == "   :target: https://x/launch?a=1&b=2"


def test_a_session_is_saved_as_a_file_without_secrets(host: Host) -> None:
    session = run_session(host=host, environment={"HF_TOKEN": "hf_abc", "SEED": "7"}, command="train", kind="batch")
    url = f"/sessions/{session.pk}/spec/"
    page = browser_of(session.owner).get(url).content.decode()
    assert "the values of HF_TOKEN." in page
    assert "hf_abc" not in page
    answer = browser_of(session.owner).get(url, {"download": ""})
    assert answer["Content-Disposition"] == f'attachment; filename="{session.name}.yaml"'
    assert yaml.safe_load(answer.content)["env"] == {"SEED": "7"}
    others = browser_of(make_user(is_superuser=True)).get(url).content.decode()
    assert ("only its owner" in others, "SEED" in others, "command:" in others) == (True, False, False)
    assert browser_of(make_user()).get(url).status_code == HTTPStatus.NOT_FOUND


def test_a_deployment_is_saved_as_a_file(host: Host) -> None:
    deployment = make_deployment(host=host)
    url = f"/deployments/{deployment.pk}/spec/"
    assert f'href="{url}"' in browser_of(deployment.owner).get(f"/deployments/{deployment.pk}/").content.decode()
    assert yaml.safe_load(browser_of(deployment.owner).get(url, {"download": ""}).content)["kind"] == "deployment"
    assert browser_of(make_user()).get(url).status_code == HTTPStatus.NOT_FOUND
    assert browser_of(make_user()).get("/deployments/nothing/spec/").status_code == HTTPStatus.NOT_FOUND
