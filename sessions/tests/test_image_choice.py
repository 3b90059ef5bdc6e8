"""Private images and manual names: every place that offers or takes an image knows whose it is."""

from typing import Any

import pytest

from accounts.models import User
from pages.launch.forms import LaunchForm
from resources.models import Image, ImageSource, Registry, ResourceGroup
from resources.registries.references import familiar_reference, spellings
from sessions.launching import image_choice
from sessions.models import Session
from sessions.tests.launch_requests import make_launch_request, rejection
from tests.api import client_of
from tests.factories import make_group, make_host, make_image, make_policy, make_user
from tests.web import browser_of, text_of

pytestmark = pytest.mark.django_db

AMOUNTS = {"cpu": "1", "memory": "1g", "shared_memory": "64m", "fgpu": "0", "count": "1"}
NAMES = ["lab.example.com/hers:1", "lab.example.com/nobodys:1"]  # of another user's image, and of none


@pytest.fixture
def group() -> ResourceGroup:
    return make_host(group=make_group()).group


@pytest.fixture
def user() -> User:
    return make_user()


@pytest.fixture
def free_user() -> User:
    return make_user(policy=make_policy(allow_unlisted_images=True))


@pytest.fixture
def hers(group: ResourceGroup) -> Image:
    """Another user's image, beside one for all."""
    make_image(environment="Python", version="3")
    return make_image(
        owner=make_user(), source=ImageSource.SESSION, environment="Mine", version="7", reference=NAMES[0]
    )


def typed(group: ResourceGroup, name: str, **values: Any) -> dict[str, Any]:
    return {"image": "", "image_name": name, "resource_group": group.pk, "preset": "", "name": "", **AMOUNTS, **values}


def order(group: ResourceGroup, **values: Any) -> dict[str, Any]:
    return {"cpu": 1, "memory": "1g", "resource_group": group.name, **values}


def test_lists_show_private_images_to_their_owner_only(hers: Image, user: User) -> None:
    assert hers.owner is not None
    for whom, is_shown in ((user, False), (hers.owner, True)):
        listed = client_of(whom).get("/api/v1/images/").json()["results"]
        assert (hers.reference in [image["reference"] for image in listed]) is is_shown
        assert client_of(whom).get(f"/api/v1/images/{hers.pk}/").status_code == (200 if is_shown else 404)
        page = text_of(browser_of(whom), "/sessions/launch/")
        assert ("Mine 7" in page) is ("My environments" in page) is is_shown


@pytest.mark.parametrize("name", NAMES)
def test_a_strangers_image_is_as_unknown_as_none(hers: Image, group: ResourceGroup, user: User, name: str) -> None:
    client, browser = client_of(user), browser_of(user)
    for path in ("/api/v1/sessions/", "/api/v1/sessions/estimate/"):
        answer = client.post(path, order(group, image=name), format="json")
        assert (answer.status_code, answer.json()["errors"]) == (400, {"image": [image_choice.UNKNOWN]})
    page = browser.post("/sessions/launch/", typed(group, name))
    assert page.status_code == 422
    assert image_choice.UNKNOWN in page.content.decode()
    assert LaunchForm(user, typed(group, name)).errors == {"image_name": [image_choice.UNKNOWN]}
    assert not Session.objects.exists()


def test_a_strangers_image_is_refused_by_row_and_version(hers: Image, group: ResourceGroup, user: User) -> None:
    form = LaunchForm(user, typed(group, "", image=hers.pk))
    assert list(form.errors) == ["image"]
    answer = client_of(user).post("/api/v1/sessions/", order(group, environment="Mine", version="7"), format="json")
    assert answer.json()["errors"] == {"version": ["There is no version '7' of 'Mine'."]}
    host = group.hosts.get()
    assert rejection(user, make_launch_request(host, image=hers)) == {"image": image_choice.UNKNOWN}


def test_superadmins_launch_no_private_image_of_others(hers: Image, group: ResourceGroup) -> None:
    superadmin = make_user(is_superuser=True)
    assert rejection(superadmin, make_launch_request(group.hosts.get(), image=hers)) == {"image": image_choice.UNKNOWN}


def test_the_owner_launches_by_name_row_and_version(hers: Image, group: ResourceGroup) -> None:
    assert hers.owner is not None
    for form in (typed(group, hers.reference), typed(group, "", image=hers.pk)):
        assert browser_of(hers.owner).post("/sessions/launch/", form).status_code == 302
    for naming in ({"image": hers.reference}, {"environment": "Mine", "version": "7"}):
        answer = client_of(hers.owner).post("/api/v1/sessions/", order(group, **naming), format="json")
        assert answer.status_code == 201
    assert {session.image for session in Session.objects.all()} == {hers}


def test_a_name_is_taken_before_the_chosen_environment(hers: Image, group: ResourceGroup, user: User) -> None:
    public = Image.objects.get(owner=None)
    form = LaunchForm(user, typed(group, public.reference, image=hers.pk))
    assert form.is_valid(), form.errors
    assert [session.image for session in form.save()] == [public]


def test_an_unlisted_name_becomes_a_private_image(group: ResourceGroup, free_user: User) -> None:
    name = "registry.example.com/team/tool:2"
    client = client_of(free_user)
    assert client.post("/api/v1/sessions/estimate/", order(group, image=name), format="json").status_code == 200
    assert not Image.objects.exists()  # an estimate stores nothing
    for _ in range(2):
        assert client.post("/api/v1/sessions/", order(group, image=name), format="json").status_code == 201
    (image,) = Image.objects.all()
    assert (image.owner, image.source, image.reference) == (free_user, ImageSource.UNLISTED, name)
    assert (image.environment, image.version) == ("registry.example.com/team/tool", "2")
    other = make_user(policy=make_policy(allow_unlisted_images=True))
    assert client_of(other).post("/api/v1/sessions/", order(group, image=name), format="json").status_code == 201
    assert Image.objects.count() == 2


def test_an_unlisted_image_ends_with_its_permission(group: ResourceGroup, free_user: User) -> None:
    image = make_image(owner=free_user, source=ImageSource.UNLISTED)
    assert image in Image.objects.usable_by(free_user)
    free_user.policy.allow_unlisted_images = False
    free_user.policy.save()
    assert image not in Image.objects.usable_by(free_user)
    refused = rejection(free_user, make_launch_request(group.hosts.get(), image=image))
    assert "registered" in refused["image"]


@pytest.mark.parametrize(
    "name", ["gpuplatform/python:3.11", "docker.io/gpuplatform/other:1", "lab.example.com:5000/x:1"]
)
def test_the_platforms_own_names_are_never_unlisted(group: ResourceGroup, free_user: User, name: str) -> None:
    Registry.objects.create(name="Lab", address="lab.example.com:5000", is_push_target=True)
    answer = client_of(free_user).post("/api/v1/sessions/", order(group, image=name), format="json")
    assert answer.json()["errors"] == {"image": [image_choice.UNKNOWN]}


def test_every_spelling_of_a_name_finds_the_image(group: ResourceGroup, user: User) -> None:
    image = make_image(reference="debian:12")
    for name in ("debian:12", "docker.io/library/debian:12", " index.docker.io/debian:12 "):
        assert image_choice.find_by_name(user, name) == image
    assert familiar_reference("docker.io/library/debian:12") == "debian:12"
    assert spellings("lab.example.com/x:1") == {"lab.example.com/x:1"}


def test_a_malformed_name_is_explained(group: ResourceGroup, user: User) -> None:
    form = LaunchForm(user, typed(group, "not a name"))
    assert "is not an image reference" in str(form.errors["image_name"])


def test_long_unlisted_names_fit_their_columns(group: ResourceGroup, free_user: User) -> None:
    name = f"registry.example.com/{'x' * 100}@sha256:{'a' * 64}"
    answer = client_of(free_user).post("/api/v1/sessions/", order(group, image=name), format="json")
    assert answer.status_code == 201
    assert Image.objects.get().reference == name


def test_a_user_names_a_bounded_number_of_images(
    group: ResourceGroup, free_user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_choice, "MAX_UNLISTED", 1)
    client = client_of(free_user)
    assert client.post("/api/v1/sessions/", order(group, image="x.org/a:1"), format="json").status_code == 201
    assert "already" in str(client.post("/api/v1/sessions/", order(group, image="x.org/b:1"), format="json").json())
