"""An array in the launch wizard: what is typed, what the server says of it, what is submitted, and the ways to it."""

from datetime import timedelta
from typing import Any

import pytest
from django.http import QueryDict
from django.test import Client
from django.utils import timezone

from accounts.models import User
from arrays import reconciliation
from arrays.models import Array
from arrays.tests.making import advance, make_array
from folders.models import Folder
from pages.launch.array_form.forms import WizardForm
from pages.tests.test_forms import typed
from resources.models import Host, Image
from sessions.models import Session
from specs.models import LaunchTemplate
from tests.factories import make_folder, make_host, make_image, make_policy, make_root, make_session, make_user
from tests.web import browser_of

pytestmark = pytest.mark.django_db
LAUNCH, ADVICE, FILE = "/sessions/launch/", "/sessions/launch/advice/", "/sessions/launch/file/"
GRID = {"command": "train", "fgpu": "0", "array_kind": "grid", "array_tasks": "lr = 0.1, 0.01\nseed = 0..2"}
SPEC = """kind: array
name: sweep
image: team/array:1
cpu: 1
memory: 1g
command: train
tasks: {random: {count: 4, seed: 7, parameters: {lr: {uniform: [0, 1]}}}}
max_parallel: 2
retries: 1
"""


@pytest.fixture
def host() -> Host:
    return make_host(cpu=64)


@pytest.fixture
def image() -> Image:
    return make_image(reference="team/array:1")


@pytest.fixture
def owner(host: Host) -> User:
    return make_user(policy=make_policy(max_pending=8))


@pytest.fixture
def page(owner: User) -> Client:
    return browser_of(owner)


def of(host: Host, image: Image, **changes: Any) -> QueryDict:
    return typed(host.group, image, **GRID | changes)


def post(page: Client, url: str, data: QueryDict, **more: Any) -> Any:
    return page.post(url, dict(data.lists()) | more, HTTP_HX_REQUEST="true" if url == ADVICE else "")


def values_of(answer: Any) -> dict[str, Any]:
    form = answer.context["form"]
    assert isinstance(form, WizardForm)
    return {name: form[name].value() for name in form.fields}


def test_an_array_is_submitted_and_shown(page: Client, host: Host, image: Image) -> None:
    answer = post(page, LAUNCH, of(host, image, name="sweep", array_max_parallel="2", array_retries="1"))
    array = Array.objects.get()
    assert answer["Location"] == f"/arrays/{array.pk}/"
    assert (array.name, array.size, array.max_parallel, array.retries) == ("sweep", 6, 2, 1)
    assert array.tasks.get(index=1).parameters == {"lr": 0.1, "seed": 1}
    assert advance(array).pending == 2
    assert Session.objects.get(name="sweep-0").environment["lr"] == "0.1"


def test_each_batch_of_tasks_asks_for_what_was_typed(owner: User, host: Host, image: Image) -> None:
    folder: Folder = make_folder(owner, root=make_root(host), name="data")
    other, start = make_session(owner=owner), f"{timezone.now() + timedelta(days=1):%Y-%m-%d %H:%M}"
    more = {"variable": ["A"], "value": ["1"], "time_limit": "2h", "not_before": start, "fgpu": "0"}
    more |= {"mount": [folder.pk], f"mount_path_{folder.pk}": "in", "mount_read_only": [folder.pk]}
    more |= {"depends_on": f"after_any:{other.pk}", "is_preemptible": "on", "is_any_group": "on"}
    form = WizardForm(owner, of(host, image, name="sweep", **more))
    assert form.is_valid(), form.errors
    array = form.submit_array()
    assert array
    asked, again = form.launch_request(), reconciliation.launch_request(array, list(array.tasks.all())[:1])
    names = ("image", "cpu", "memory", "shared_memory", "fgpu", "environment", "command", "time_limit", "not_before")
    for name in (*names, "mounts", "depends_on", "is_preemptible", "resource_group", "is_any_group"):
        assert getattr(again, name) == getattr(asked, name), name


def test_the_preview_says_what_would_run(page: Client, host: Host, image: Image) -> None:
    html = post(page, ADVICE, of(host, image, array_max_parallel="4")).content.decode()
    assert "6 tasks, first: <code>lr=0.1 seed=0</code>, <code>lr=0.1 seed=1</code>" in html
    assert "at most 4 at a time" in html
    assert "Start 6 tasks" in html
    assert "Starts now" in html or "start now" in html


def test_what_is_drawn_is_what_was_shown(page: Client, host: Host, image: Image) -> None:
    drawn = {"array_kind": "random", "array_tasks": "lr = uniform 0, 1", "array_count": "3", "form_key": "f1"}
    html = post(page, ADVICE, of(host, image, **drawn)).content.decode()
    post(page, LAUNCH, of(host, image, **drawn))
    for task in Array.objects.get().tasks.all():
        assert f"lr={task.parameters['lr']}" in html


@pytest.mark.parametrize(
    ("wrong", "field", "words"),
    [
        ({"array_tasks": "lr"}, "array_tasks", "Line 1"),
        ({"array_kind": "indices", "array_tasks": "9-1"}, "array_tasks", "lower one first"),
        ({"array_kind": "random", "array_tasks": "a = int 1 2"}, "array_count", "how many tasks"),
        ({"array_kind": "odd"}, "array_kind", "odd"),
        ({"array_max_parallel": "0"}, "array_max_parallel", "1"),
        ({"array_retries": "11"}, "array_retries", "10"),
        ({"array_retries": "x"}, "array_retries", "whole number"),
        ({"command": ""}, "command", "what each task runs"),
        ({"count": "2"}, "count", "once"),
        ({"cluster_size": "2"}, "cluster_size", "one container"),
        ({"variable": ["lr"], "value": ["1"]}, "environment", "parameter of the tasks"),
        ({"name": "a" * 64}, "name", "characters"),
    ],
)
def test_mistakes_stand_at_their_fields(
    page: Client, host: Host, image: Image, wrong: dict[str, str], field: str, words: str
) -> None:
    answer = post(page, LAUNCH, of(host, image, **wrong))
    assert answer.status_code == 422
    assert list(answer.context["form"].messages()) == [field]
    assert words in " ".join(answer.context["form"].messages()[field])
    assert not Array.objects.exists()
    assert (wrong.get("array_tasks") or GRID["array_tasks"]) == values_of(answer)["array_tasks"]


def test_a_policy_refuses_at_the_field(host: Host, image: Image) -> None:
    owner = make_user(policy=make_policy(max_array_tasks=5))
    said = "Your policy allows at most 5 tasks in an array; this makes 6."
    answer = post(browser_of(owner), ADVICE, of(host, image))
    assert answer.context["problems"] == {"array_tasks": [said]}
    assert "6 tasks" in answer.content.decode()


def test_a_full_queue_leaves_the_array_to_wait(page: Client, owner: User, host: Host, image: Image) -> None:
    for _ in range(4):
        make_session(owner=owner)
    html = post(page, ADVICE, of(host, image)).content.decode()
    assert "Start 6 tasks" in html
    assert "waiting sessions" not in html
    assert post(page, LAUNCH, of(host, image)).status_code == 302


def test_a_draft_and_a_link_keep_the_array(page: Client, host: Host, image: Image) -> None:
    answer = post(page, ADVICE, of(host, image), form_key="f1", source="")
    assert values_of(page.get(LAUNCH))["array_tasks"] == GRID["array_tasks"]
    link = answer.context["link"]
    assert values_of(page.get(link))["array_tasks"] == GRID["array_tasks"]
    assert values_of(page.get(link))["array_kind"] == "grid"


@pytest.mark.parametrize(
    ("tasks", "kind", "text"),
    [
        ("0-9:3%2", "indices", "0-9:3%2"),
        ({"grid": {"lr": [0.1, 0.2]}}, "grid", "lr = 0.1, 0.2"),
        ({"list": [{"lr": 0.1}, {"lr": 0.2}]}, "list", "lr\n0.1\n0.2"),
    ],
)
def test_an_array_is_changed_and_run_again(page: Client, owner: User, tasks: Any, kind: str, text: str) -> None:
    array = make_array(owner, tasks=tasks, retries=2, env={"A": "1"})
    assert f"/sessions/launch/?array={array.pk}" in page.get(f"/arrays/{array.pk}/").content.decode()
    values = values_of(page.get(f"{LAUNCH}?array={array.pk}"))
    assert (values["array_kind"], values["array_tasks"], values["array_retries"]) == (kind, text, 2)
    assert (values["command"], values["cpu"], values["environment"]) == ("train", 1, [("A", "1")])
    assert browser_of(make_user()).get(f"{LAUNCH}?array={array.pk}").context["form"].link_problems


def test_a_spec_file_fills_the_wizard(page: Client, image: Image) -> None:
    answer = page.post(FILE, {"text": SPEC, "fill": "1"})
    assert answer.status_code == 200
    values = values_of(answer)
    assert (values["array_kind"], values["array_tasks"]) == ("random", "lr = uniform 0, 1")
    names = ("name", "count", "array_count", "array_seed", "array_max_parallel", "array_retries")
    assert [values[name] for name in names] == ["sweep", 1, 4, 7, 2, 1]


def test_a_file_of_a_long_array_is_estimated(page: Client, image: Image) -> None:
    text = SPEC.replace("count: 4", "count: 100").replace("max_parallel: 2\n", "")
    assert page.post(FILE, {"text": text, "check": "1"}).status_code == 200


def test_a_template_keeps_an_array(page: Client, owner: User, host: Host, image: Image) -> None:
    answer = post(page, "/sessions/launch/templates/new/", of(host, image, name="sweep"), form_key="f1")
    assert answer.status_code == 200
    form = answer.context["form"]
    assert "kind: array" in form["launch"].value()
    fields = {name: form[name].value() or "" for name in form.fields}
    page.post("/sessions/launch/templates/new/", fields | {"save": "1"})
    template = LaunchTemplate.objects.get()
    url = f"/sessions/launch/templates/{template.pk}/"
    assert values_of(page.post(url, {"wizard": "1"}))["array_tasks"] == "lr = 0.1, 0.01\nseed = 0..2"
    assert page.post(url)["Location"] == f"/arrays/{Array.objects.get().pk}/"
