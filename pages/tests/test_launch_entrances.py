"""A launch is allowed, or refused in the same words, whether it comes from the page, the API or the estimate."""

from http import HTTPStatus
from typing import Any

import pytest

from accounts.models import User
from pages.launch.forms import LaunchForm
from resources.amounts.units import GIB, MIB
from resources.forms import PresetForm
from resources.models import Host, Image
from sessions.launching import validation
from sessions.lifecycle import DependencyKind
from sessions.models import Session
from sessions.tests.launch_requests import make_launch_request, rejection
from tests.api import client_of
from tests.factories import make_group, make_host, make_image, make_project, make_session, make_user

pytestmark = pytest.mark.django_db

API = "/api/v1/sessions/"
ESTIMATE = f"{API}estimate/"


@pytest.fixture
def host() -> Host:
    return make_host(gpus=2)


@pytest.fixture
def image() -> Image:
    return make_image()


def on_page(owner: User, host: Host, image: Image, **more: Any) -> dict[str, list[str]]:
    """Return what the form of the page refuses."""
    amounts = {"preset": "", "cpu": "1", "memory": "1g", "shared_memory": "64m", "fgpu": "0", "count": "1"}
    form = LaunchForm(owner, {"image": image.pk, "resource_group": host.group_id, **amounts, **more})
    if form.is_valid():
        form.save()
    return {name: [str(each) for each in errors] for name, errors in form.errors.items()}


def in_api(owner: User, host: Host, image: Image, url: str = API, **more: Any) -> dict[str, list[str]]:
    """Return what the API refuses."""
    body = {"image": image.reference, "resource_group": host.group.name, "cpu": 1, "memory": "1g", **more}
    answer = client_of(owner).post(url, body, format="json")
    if answer.status_code in (HTTPStatus.OK, HTTPStatus.CREATED):
        return {}
    assert answer.status_code == HTTPStatus.BAD_REQUEST
    errors: dict[str, list[str]] = answer.json()["errors"]
    return errors


@pytest.mark.parametrize("is_superuser", [False, True])
def test_a_session_depends_on_those_of_its_owner_alone(host: Host, image: Image, is_superuser: bool) -> None:
    owner = make_user(is_superuser=is_superuser)
    own, other = make_session(owner=owner), make_session()
    refused = {"depends_on": "You can only depend on sessions and arrays of your own."}
    assert rejection(owner, make_launch_request(host, depends_on={other: DependencyKind.AFTER_OK})) == refused
    assert not rejection(owner, make_launch_request(host, depends_on={own: DependencyKind.AFTER_OK}))
    assert in_api(owner, host, image, depends_on=[other.pk]).keys() == {"depends_on"}
    assert in_api(owner, host, image, ESTIMATE, depends_on=[other.pk]).keys() == {"depends_on"}
    assert on_page(owner, host, image, depends_on=[other.pk]).keys() == {"depends_on"}
    assert not in_api(owner, host, image, depends_on=[own.pk])
    assert not on_page(owner, host, image, depends_on=[own.pk])


def test_the_page_takes_what_is_chosen_of_each(host: Host, image: Image) -> None:
    owner = make_user()
    first, second = make_session(owner=owner), make_session(owner=owner)
    chosen = {"depends_on": ["", f"after_any:{first.pk}", f"after:{second.pk}"]}
    form = LaunchForm(owner, chosen)
    assert {session: kind for session, kind in form.others if kind} == {first: "after_any", second: "after"}
    assert not LaunchForm(owner, {"depends_on": ["", ""]}).advanced_is_open
    assert not on_page(owner, host, image, **chosen)
    made = Session.objects.exclude(pk__in=(first.pk, second.pk)).get()
    assert dict(made.dependencies.values_list("to_session", "kind")) == {first.pk: "after_any", second.pk: "after"}
    assert on_page(owner, host, image, depends_on=[f"after_all:{first.pk}"]).keys() == {"depends_on"}


def test_the_page_offers_as_many_dependencies_as_are_allowed(host: Host) -> None:
    owner = make_user()
    for _ in range(validation.MAX_DEPENDENCIES + 1):
        make_session(owner=owner)
    assert len(LaunchForm(owner).offer.others) > validation.MAX_DEPENDENCIES


def test_the_group_of_a_project_is_refused_with_one_text(image: Image) -> None:
    owner = make_user()
    group, project = make_group(open_to_all=False, name="a100"), make_project(owner, name="vision")
    project.resource_groups.add(group)
    host = make_host(group=group)
    open_host = make_host(group=make_group(name="open"))
    said = {"resource_group": ["a100 is granted to your project vision: start the session for it."]}
    assert on_page(owner, host, image) == said
    assert in_api(owner, host, image) == said
    assert in_api(owner, host, image, ESTIMATE) == said
    other = ["In a100: a100 is granted to your project vision: start the session for it."]
    assert on_page(owner, open_host, image, other_groups=[group.pk]) == {"other_groups": other}
    assert in_api(owner, open_host, image, resource_groups=["open", "a100"]) == {"resource_groups": other}
    assert not on_page(owner, host, image, project=project.pk)
    assert not in_api(owner, host, image, project="vision")


def test_a_group_of_nobody_is_unknown_everywhere(image: Image) -> None:
    owner, host = make_user(), make_host(group=make_group(open_to_all=False, name="a100"))
    assert in_api(owner, host, image) == {"resource_group": ["There is no resource group 'a100' that you may use."]}
    assert on_page(owner, host, image).keys() == {"resource_group"}
    assert rejection(owner, make_launch_request(host)) == {"resource_group": "You may not use this resource group."}


@pytest.mark.parametrize(("memory", "shared"), [(GIB, 2 * GIB), (GIB, MIB // 2), (GIB, GIB)])
def test_shared_memory_of_presets_is_bound_as_that_of_sessions(memory: int, shared: int) -> None:
    said = validation.amount_errors(cpu=1, memory=memory, shared_memory=shared, fgpu=0, count=1)
    form = PresetForm({"name": "small", "cpu": 1, "memory": f"{memory}", "shared_memory": f"{shared}", "fgpu": "0"})
    form.is_valid()
    assert [*form.errors.get("shared_memory", [])] == [error for name, error in said.items() if name == "shared_memory"]
