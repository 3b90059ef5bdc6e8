"""What the launch wizard begins with, and what it keeps."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, BrokenBarrierError
from typing import Any

import pytest
from django.db import connections
from django.http import QueryDict
from django.template import Context, Template
from django.test import Client, RequestFactory
from pytest_django import DjangoAssertNumQueries

from accounts.models import User
from pages.launch import drafts, queries
from pages.launch.array_form.forms import WizardForm
from pages.launch.forms import LaunchForm
from pages.models import LaunchDraft
from resources.amounts.units import GIB, MIB
from resources.models import Host, Image
from sessions.lifecycle import Kind
from sessions.models import Session
from tests.factories import (
    make_folder,
    make_gpu,
    make_group,
    make_host,
    make_image,
    make_policy,
    make_preset,
    make_root,
    make_session,
    make_user,
)
from tests.web import browser_of, text_of

pytestmark = pytest.mark.django_db

LAUNCH = "/sessions/launch/"
CHECK = "/sessions/launch/advice/"


@pytest.fixture
def owner() -> User:
    return make_user()


@pytest.fixture
def host() -> Host:
    return make_host(group=make_group(name="lab", fgpu_per_gpu=2), gpus=1)


@pytest.fixture
def image(host: Host) -> Image:
    return make_image(environment="Python", version="3.11", reference="example/python:3.11", is_default=True)


def form_of(host: Host, image: Image, **changes: Any) -> dict[str, Any]:
    typed = {"image": image.pk, "resource_group": host.group.pk, "preset": "", "name": "", "count": "1"}
    typed |= {"cpu": "2", "memory": "4g", "shared_memory": "64m", "fgpu": "0.5", "form_key": "tab-1", "source": ""}
    return typed | changes


def shown(owner: User, query: str = "") -> LaunchForm:
    form = browser_of(owner).get(f"{LAUNCH}review/{query}").context["form"]
    assert isinstance(form, LaunchForm)
    return form


def value_of(form: LaunchForm, *names: str) -> list[Any]:
    return [form[name].value() for name in names]


def test_what_was_typed_is_there_again(owner: User, host: Host, image: Image) -> None:
    typed = form_of(host, image, name="x y", cpu="many", variable=["A", ""], value=["1", "2"], command="a\0b")
    assert browser_of(owner).post(CHECK, typed).status_code == 200
    form = shown(owner)  # in another login session
    assert value_of(form, "name", "cpu", "command") == ["x y", "many", "ab"]
    assert form.variables == [("A", "1"), ("", "2")]
    assert "You left off here." in text_of(browser_of(owner), LAUNCH)
    assert shown(make_user())["name"].value() is None, "it is the owner's alone"


def test_a_refused_launch_is_kept_too(owner: User, host: Host, image: Image) -> None:
    assert browser_of(owner).post(LAUNCH, form_of(host, image, name="x y")).status_code == 422
    assert shown(owner)["name"].value() == "x y"


def test_a_launched_form_keeps_nothing_more(owner: User, host: Host, image: Image) -> None:
    browser = browser_of(owner)
    browser.post(CHECK, form_of(host, image, name="first"))
    browser.post(LAUNCH, form_of(host, image, name="first"))
    assert Session.objects.get().name == "first"
    browser.post(CHECK, form_of(host, image, name="late"))  # what the same tab sent before it left
    assert not LaunchDraft.objects.get().values
    browser.post(CHECK, form_of(host, image, name="second", form_key="tab-2"))
    assert shown(owner)["name"].value() == "second"


def test_a_launch_with_an_odd_key_is_one_launch(owner: User, host: Host, image: Image) -> None:
    browser, key = browser_of(owner), "\0" + "k" * 40
    assert browser.post(CHECK, form_of(host, image, form_key=key)).status_code == 200
    assert browser.post(LAUNCH, form_of(host, image, form_key=key)).status_code == 302
    browser.post(CHECK, form_of(host, image, name="late", form_key=key))
    assert not LaunchDraft.objects.get().values
    assert Session.objects.count() == 1


def test_a_form_is_launched_once_as_it_is(owner: User, host: Host, image: Image) -> None:
    browser, form = browser_of(owner), form_of(host, image, name="")
    first = browser.post(LAUNCH, form)
    again = browser.post(LAUNCH, form, follow=True)
    assert Session.objects.count() == 1
    assert again.redirect_chain[0][0] == first.headers["Location"]
    assert "launched already" in again.content.decode()
    browser.post(LAUNCH, form_of(host, image, name="another"))  # changed after the browser's Back
    assert Session.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_a_form_posted_twice_at_once_is_launched_once(
    owner: User, host: Host, image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    both_submit, save = Barrier(2, timeout=0.5), WizardForm.save

    def meet_and_save(form: WizardForm) -> list[Session]:
        with suppress(BrokenBarrierError):
            both_submit.wait()  # in vain, if one waits for the other's launch
        return save(form)

    monkeypatch.setattr(WizardForm, "save", meet_and_save)
    browsers = [browser_of(owner) for _each in range(2)]
    browsers[0].post(CHECK, form_of(host, image))  # there is a row already

    def post(browser: Client) -> int:
        try:
            return browser.post(LAUNCH, form_of(host, image)).status_code
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(post, browsers)) == [302, 302]
    assert Session.objects.count() == 1


def test_starting_over_forgets_draft_and_last_launch(owner: User, host: Host, image: Image) -> None:
    make_session(owner=owner, image=image, resource_group=host.group, cpu=3)
    browser = browser_of(owner)
    browser.post(CHECK, form_of(host, image, cpu="7"))
    page = browser.post("/sessions/launch/start-over/", {"form_key": "tab-1"}, follow=True)
    assert page.context["form"]["cpu"].value() == 1
    browser.post(CHECK, form_of(host, image, cpu="7"))  # what the page sent as it was left
    assert not LaunchDraft.objects.get().values


def test_what_is_too_long_is_not_kept(owner: User, host: Host, image: Image) -> None:
    data = QueryDict(mutable=True)
    data.update({"form_key": "tab", "command": "x" * drafts.MAX_LENGTH})
    drafts.save(owner, data)
    assert not LaunchDraft.objects.exists()


def test_the_last_launch_is_remembered(owner: User, host: Host, image: Image) -> None:
    make_image(environment="Zebra")
    preset = make_preset(cpu=2, memory=3 * GIB, fgpu=1000)
    folder = make_folder(owner, root=make_root(host), name="data")
    amounts = {"cpu": 2, "memory": 3 * GIB, "fgpu": 1000}
    session = make_session(owner=owner, image=image, resource_group=host.group, name="old", **amounts)
    session.mounts.create(folder=folder, folder_name="data", path="/home/work/data", is_read_only=True)
    Session.objects.update(environment={"SECRET": "1"})
    form = shown(owner)
    assert value_of(form, "image", "preset", "cpu", "memory") == [image.pk, preset.pk, 2, "3 GiB"]
    assert [(row.folder, row.is_read_only) for row in form.folders.chosen] == [(folder, True)]
    assert value_of(form, "name", "environment") == [None, None]


def test_a_session_is_launched_again_with_changes(owner: User, host: Host, image: Image) -> None:
    session = make_session(owner=owner, image=image, resource_group=host.group, memory=GIB + MIB, fgpu=500)
    Session.objects.update(environment={"A": "1"}, command="train", kind=Kind.BATCH, time_limit="2:00:00")
    form = shown(owner, f"?again={session.pk}&fgpu=0.7&shared_memory={128 * MIB}")
    names = ("image", "preset", "memory", "shared_memory", "fgpu", "command", "time_limit", "environment")
    assert value_of(form, *names) == [image.pk, "", "1025 MiB", "128 MiB", "0.7", "train", "2h", [("A", "1")]]


def test_a_strangers_session_is_not_launched_again(host: Host, image: Image) -> None:
    session = make_session(image=image, resource_group=host.group, cpu=5)
    Session.objects.update(environment={"SECRET": "1"}, command="secret", kind=Kind.BATCH)
    assert shown(make_user(), f"?again={session.pk}")["cpu"].value() == 1
    form = shown(make_user(is_superuser=True), f"?again={session.pk}")
    assert value_of(form, "cpu", "environment", "command") == [5, [], ""]


def test_a_link_names_what_is_launched(owner: User, host: Host, image: Image) -> None:
    other = make_host(group=make_group(name="other")).group
    preset = make_preset(name="big", cpu=4)
    make_folder(owner, root=make_root(host), name="data")
    form = shown(owner, "?image=example/python:3.11&group=other&preset=big&folder=data&env=A=1=2&count=3&name=exam")
    names = ("image", "resource_group", "preset", "cpu", "count", "name", "environment")
    assert value_of(form, *names) == [image.pk, other.pk, preset.pk, 4, "3", "exam", [("A", "1=2")]]
    assert [row.folder.name for row in form.folders.chosen] == ["data"]
    assert not Session.objects.exists(), "a link launches nothing"


def test_a_link_wins_until_its_form_is_changed(owner: User, host: Host, image: Image) -> None:
    browser = browser_of(owner)
    browser.post(CHECK, form_of(host, image, name="draft"))
    assert shown(owner, "?name=link")["name"].value() == "link"
    assert shown(owner)["name"].value() == "draft", "opening a link loses nothing"
    browser.post(CHECK, form_of(host, image, name="changed", source="name=link"))
    assert shown(owner, "?name=link")["name"].value() == "changed"


@pytest.mark.parametrize(
    "query", ["?image=nothing/such:1", "?again=x", "?preset=%00", "?memory=lots", "?count=x&fgpu=9e9"]
)
def test_an_odd_link_still_shows_a_form(owner: User, host: Host, image: Image, query: str) -> None:
    assert shown(owner, query)


def test_there_are_four_pages_and_no_others(owner: User, host: Host, image: Image) -> None:
    browser = browser_of(owner)
    for slug in ("environment", "folders", "resources", "review"):
        assert browser.get(f"{LAUNCH}{slug}/").context["step"].slug == slug
    assert browser.get(f"{LAUNCH}nothing/").status_code == 404


def test_the_copied_link_leaves_variables_out(owner: User, host: Host, image: Image) -> None:
    typed = form_of(host, image, variable=["TOKEN"], value=["secret"], name="named", count="2")
    page = browser_of(owner).post(CHECK, typed)
    link = page.context["link"]
    assert "secret" not in link
    form = shown(owner, link.partition("/review/")[2])
    names = ("image", "memory", "fgpu", "count", "name")
    assert value_of(form, *names) == [image.pk, "4 GiB", "0.5", "2", "named"]


def test_groups_and_gpus_are_in_links_and_launches_again(owner: User, host: Host, image: Image) -> None:
    other = make_host(group=make_group(name="other"), gpus=1).group
    names = ("resource_group", "other_groups", "is_any_group", "gpu_model", "min_gpu_memory")
    typed = form_of(host, image, other_groups=[other.pk], gpu_model="Simulated GPU", min_gpu_memory="4g")
    answer = browser_of(owner).post(CHECK, typed | {"fgpu": "1"})
    assert value_of(shown(owner, answer.context["link"].partition("/review/")[2]), *names) == [
        *(host.group.pk, [other.pk], None, "Simulated GPU", "4 GiB"),
    ]
    assert value_of(shown(owner, "?group=other&other_group=lab&is_any_group=on"), *names[:3]) == [
        *(other.pk, [host.group.pk], True),
    ]
    session = make_session(owner=owner, image=image, resource_group=other, gpu_model="H100", min_gpu_memory=2 * GIB)
    Session.objects.update(group_choices=[host.group.pk, other.pk])  # it has started in the second
    assert value_of(shown(owner, f"?again={session.pk}"), *names) == [
        *(host.group.pk, [other.pk], None, "H100", "2 GiB"),
    ]
    Image.objects.update(min_gpu_memory=2 * GIB)  # which comes with the environment
    assert shown(owner, f"?again={session.pk}")["min_gpu_memory"].value() == ""


def test_the_review_says_groups_and_gpus(owner: User, host: Host, image: Image) -> None:
    other = make_host(group=make_group(name="other"), gpus=1).group
    Image.objects.update(min_gpu_memory=2 * GIB)
    typed = form_of(host, image, other_groups=[host.group.pk, other.pk], fgpu="2", gpu_model="Simulated GPU")
    page = browser_of(owner).post(CHECK, typed | {"min_gpu_memory": "4g"}).content.decode()
    assert 'lab <span class="text-secondary">or</span> other</dd>' in page
    assert "<dt>GPU model</dt><dd>Simulated GPU</dd>" in page
    assert "<dt>Least GPU memory</dt><dd>4 GiB</dd>" in page
    assert '<span class="text-secondary">in lab</span>' in page
    page = browser_of(owner).post(CHECK, typed | {"min_gpu_memory": "1g"}).content.decode()
    assert '<dd>2 GiB <span class="text-secondary">for the environment</span></dd>' in page
    page = browser_of(owner).post(CHECK, typed | {"is_any_group": "on"}).content.decode()
    assert "or any other group that I may use" in page


def test_gpu_models_are_those_that_there_are(owner: User, host: Host, image: Image) -> None:
    alone = make_host(group=make_group(name="other"))
    make_gpu(host=alone, name="NVIDIA A10")
    mixed = make_host(group=alone.group)
    make_gpu(host=mixed, name="NVIDIA T4")
    make_gpu(host=mixed, index=1, name="NVIDIA L4")
    make_gpu(host=make_host(group=make_group(name="closed", open_to_all=False)), name="NVIDIA H100")
    make_gpu(host=make_host(group=host.group), name="NVIDIA A10")
    models = browser_of(owner).get(f"{LAUNCH}?gpu_model=NVIDIA+V100").context["gpu_models"]
    assert [(each.text, each.is_chosen) for each in models] == [
        ("any", False),
        ("NVIDIA A10", False),
        ("Simulated GPU · lab", False),
        ("NVIDIA V100", True),  # of a link: the form says that there is none
    ]


def test_a_preset_that_cannot_be_had_says_why(host: Host, image: Image) -> None:
    owner = make_user(policy=make_policy(cpu=4))
    big, fine = make_preset(cpu=8, fgpu=5000), make_preset(cpu=1, fgpu=500)
    presets = browser_of(owner).get(LAUNCH).context["facts"]["presets"]
    assert presets[big.pk]["refusals"] == {
        host.group.pk: "Your policy allows at most 4 CPU cores. The largest host of this group has 2 fGPU."
    }
    assert presets[fine.pk]["refusals"] == {}


@pytest.mark.parametrize(("gpus", "name"), [(1, "small"), (0, "no-gpu")])
def test_a_form_begins_with_a_preset_that_can_be_served(owner: User, image: Image, gpus: int, name: str) -> None:
    group = make_host(group=make_group(name="first"), gpus=gpus).group
    chosen = {make_preset(name=each, fgpu=fgpu).pk: each for each, fgpu in (("no-gpu", 0), ("small", 500))}
    form = browser_of(owner).get(LAUNCH).context["form"]
    assert chosen[form["preset"].value()] == name
    refusals = queries.launch_facts(form.offer)["presets"]
    said = {chosen[pk]: facts["refusals"].get(group.pk, "") for pk, facts in refusals.items()}
    assert said == {"no-gpu": "", "small": "" if gpus else "No host of this group has a GPU."}


def test_versions_stand_newest_first(owner: User, host: Host) -> None:
    for version in ("3.9", "3.11", "3.2"):
        make_image(environment="Python", version=version)
    ((name, images),) = shown(owner).offer.environments
    assert (name, [each.version for each in images]) == ("Python", ["3.11", "3.9", "3.2"])


@pytest.mark.parametrize("count", [1, 12])
def test_a_page_takes_a_constant_number_of_queries(
    owner: User, host: Host, count: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    root = make_root(host)
    for number in range(count):
        make_image(environment=f"Environment {number}")
        make_preset()
        make_folder(owner, root=root, name=f"folder-{number}")
        make_host(group=make_group())
        make_session(owner=owner, resource_group=host.group)
    browser = browser_of(owner)
    browser.get(LAUNCH)
    with django_assert_num_queries(24):
        browser.get(LAUNCH)


def test_a_new_user_gets_quick_starts(owner: User, host: Host, image: Image) -> None:
    preset = make_preset(name="small")
    request = RequestFactory().get("/")
    request.user = owner
    page = Template("{% load launch %}{% quick_starts %}").render(Context({"request": request}))
    assert f"image=example%2Fpython%3A3.11&amp;preset={preset.name}" in page
    session = make_session(owner=owner, image=image, resource_group=host.group, name="before")
    page = Template("{% load launch %}{% quick_starts %}").render(Context({"request": request}))
    assert f"review/?again={session.pk}" in page
