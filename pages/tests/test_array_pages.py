"""The pages of arrays: their list, the tasks of one, and what is done with them, each by whom it is theirs to."""

import pytest
from django.test import Client

from accounts.models import User
from arrays.models import ArrayState, TaskState
from arrays.tests.making import advance, finish, make_array, task_of
from resources.models import Host
from tests.factories import make_host, make_project, make_user
from tests.web import browser_of

pytestmark = pytest.mark.django_db
GRID = {"grid": {"lr": [0.1, 0.01]}}


@pytest.fixture
def host() -> Host:
    return make_host(cpu=64)


@pytest.fixture
def owner(host: Host) -> User:
    return make_user()


@pytest.fixture
def browser(owner: User) -> Client:
    return browser_of(owner)


def test_the_list_shows_progress_and_finds(browser: Client, owner: User) -> None:
    make_array(owner)
    html = browser.get("/arrays/").content.decode()
    assert "0 of 3 tasks have ended" in html
    assert "3 waiting" in html
    assert "No array matches" in browser.get("/arrays/?q=other").content.decode()
    assert "No array has ended yet" in browser.get("/arrays/?ended=1").content.decode()


def test_live_arrays_stand_above_the_sessions(browser: Client, owner: User) -> None:
    array = make_array(owner)
    assert f'href="/arrays/{array.pk}/"' in browser.get("/sessions/").content.decode()


def test_tasks_are_shown_filtered_and_sorted(browser: Client, owner: User) -> None:
    url = f"/arrays/{make_array(owner, tasks=GRID).pk}/"
    html = browser.get(url, {"order": "-index"}).content.decode()
    assert html.index('id="task-1"') < html.index('id="task-0"')
    html = browser.get(url, {"parameter": "lr=0.01"}).content.decode()
    assert 'id="task-1"' in html
    assert 'id="task-0"' not in html
    assert "No task matches" in browser.get(url, {"state": "FAILED"}).content.decode()
    for wrong in ({"order": "secret"}, {"state": "odd"}):
        assert "Show all tasks" in browser.get(url, wrong).content.decode()


def test_a_range_is_cancelled_and_retried(browser: Client, owner: User) -> None:
    array = make_array(owner)
    assert browser.post(f"/arrays/{array.pk}/cancel/", {"tasks": "0-1"}).status_code == 302
    assert list(array.tasks.values_list("state", flat=True)) == [TaskState.CANCELLED] * 2 + [TaskState.WAITING]
    browser.post(f"/arrays/{array.pk}/retry/", {"tasks": "1"})
    assert task_of(array, 1).state == TaskState.WAITING
    browser.post(f"/arrays/{array.pk}/cancel/", {"all": "1"})
    array.refresh_from_db()
    assert array.state == ArrayState.CANCELLED


@pytest.mark.parametrize("wrong", ["", "x", "3-1"])
def test_a_wrong_range_is_refused_at_its_field(browser: Client, owner: User, wrong: str) -> None:
    array = make_array(owner)
    answer = browser.post(f"/arrays/{array.pk}/cancel/", {"tasks": wrong})
    assert answer.status_code == 422
    assert 'id="range-error"' in answer.content.decode()
    assert not array.tasks.exclude(state=TaskState.WAITING).exists()


def test_failed_tasks_are_retried_and_their_logs_open(browser: Client, owner: User, host: Host) -> None:
    array = advance(make_array(owner, tasks="0"))
    finish(task_of(array, 0), host, 3)
    html = browser.get(f"/arrays/{advance(array).pk}/").content.decode()
    assert "<td>3</td>" in html
    assert f"/sessions/{task_of(array, 0).session_id}/logs/" in html
    browser.post(f"/arrays/{array.pk}/retry/", {"all": "1"})
    assert task_of(array, 0).state == TaskState.WAITING


def test_an_array_is_held_released_and_changed(browser: Client, owner: User) -> None:
    array = make_array(owner)
    for act, data, name, value in (
        ("hold", {}, "state", ArrayState.HELD),
        ("release", {}, "state", ArrayState.ACTIVE),
        ("change", {"max_parallel": "2"}, "max_parallel", 2),
        ("change", {"max_parallel": ""}, "max_parallel", None),
    ):
        browser.post(f"/arrays/{array.pk}/{act}/", data)
        array.refresh_from_db()
        assert getattr(array, name) == value
    answer = browser.post(f"/arrays/{array.pk}/change/", {"max_parallel": "0"})
    assert answer.status_code == 422
    assert 'id="max-parallel-error"' in answer.content.decode()


def test_managers_cancel_and_strangers_see_nothing(owner: User) -> None:
    manager = make_user()
    project = make_project(owner, managers=[manager])
    array = make_array(owner, project=project.name)
    assert browser_of(make_user()).get(f"/arrays/{array.pk}/").status_code == 404
    managing = browser_of(manager)
    assert managing.post(f"/arrays/{array.pk}/hold/").status_code == 404
    assert managing.post(f"/arrays/{array.pk}/cancel/", {"tasks": "0"}).status_code == 302
