"""The pages of arrays: their list, the tasks of one, and what is done with them, each by whom it is theirs to."""

import csv
import io
import json
import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from arrays.models import Array, ArrayState, TaskState
from arrays.tests.making import advance, finish, make_array, task_of
from pages.arrays.plot import MAX_WORDS, axis_of
from pages.session_list.live.feed import Audience, change_messages
from resources.models import Host
from sessions.lifecycle import Status
from tests.factories import make_host, make_project, make_session, make_user, moved_to
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


def test_a_row_opens_with_tasks_that_run_or_failed(browser: Client, owner: User, host: Host) -> None:
    array = advance(make_array(owner))
    finish(task_of(array, 1), host, 3)
    running = task_of(array, 2).session
    assert running is not None
    moved_to(Status.RUNNING, running, host)
    advance(array)
    html = browser.get("/sessions/").content.decode()
    assert f'href="?open={array.pk}" hx-boost="true" aria-expanded="false"' in html
    assert "sweep-1" not in html
    html = browser.get("/sessions/", {"open": array.pk}).content.decode()
    assert 'aria-expanded="true"' in html
    for index in (1, 2):
        assert f'<a href="/sessions/{task_of(array, index).session_id}/">sweep-{index}</a>' in html
    assert f'href="/arrays/{array.pk}/?state=FAILED">1 failed' in html
    part = browser.get("/sessions/", {"open": array.pk}, HTTP_HX_REQUEST="true", HTTP_HX_TARGET="live-arrays")
    assert part.content.decode().startswith('<section class="card" id="live-arrays"')


def test_an_array_stands_for_its_sessions_in_lists(browser: Client, owner: User) -> None:
    session = task_of(advance(make_array(owner)), 0).session
    assert session is not None
    html = browser.get("/sessions/").content.decode()
    assert f'id="session-{session.pk}"' not in html
    assert re.search(r'data-count="active">0<', html)
    audience = Audience(user_id=owner.pk, sees_all=False, columns=(), language="en")
    message = json.loads(change_messages({audience: {session.pk}})[audience])
    assert (message["rows"], message["arrays"]) == ([], True)
    alone = make_session(owner=owner)
    assert json.loads(change_messages({audience: {alone.pk}})[audience])["arrays"] is False


@pytest.mark.parametrize("find", ["Swee", "sweep-2", "{pk}", "{session}"])
def test_a_search_finds_the_array(browser: Client, owner: User, find: str) -> None:
    array = advance(make_array(owner))
    make_array(owner, name="other")
    text = find.format(pk=array.pk[:6], session=task_of(array, 1).session_id)
    for url in ("/sessions/", "/arrays/"):
        html = browser.get(url, {"q": text}).content.decode()
        assert f'id="array-{array.pk}"' in html
        assert html.count('id="array-') == (2 if url == "/arrays/" else 1)
    assert 'id="array-' not in browser_of(make_user()).get("/sessions/", {"q": text}).content.decode()
    assert 'id="array-' not in browser.get("/sessions/", {"q": text, "tab": "finished"}).content.decode()
    for miss in ("sweep-9", "sweep-99999999999", "x\0y"):
        assert 'id="array-' not in browser.get("/sessions/", {"q": miss}).content.decode()


def test_a_session_leads_to_its_array_and_neighbours(browser: Client, owner: User, host: Host) -> None:
    array = advance(make_array(owner, retries=1))
    first, middle, last = (task_of(array, index).session_id for index in range(3))
    html = browser.get(f"/sessions/{middle}/").content.decode()
    assert f'href="/arrays/{array.pk}/"' in html
    assert f'id="previous-task" rel="prev" href="/sessions/{first}/"' in html
    assert f'id="next-task" rel="next" href="/sessions/{last}/"' in html
    assert "previous-task" not in browser.get(f"/sessions/{first}/").content.decode()
    finish(task_of(array, 1), host, 1)
    array.tasks.filter(index=1).update(session=None)  # as once another session runs the task
    assert 'id="next-task"' in browser.get(f"/sessions/{middle}/").content.decode()


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


def measured(owner: User, host: Host) -> Array:
    """Return an array whose tasks have metrics, but for the one that failed."""
    array = advance(make_array(owner, tasks={"list": [{"lr": 9, "opt": "=x"}, {"lr": 10}, {"lr": 100}, {"lr": -1}]}))
    for index, loss in enumerate(("0.5", "12", "3.25e-05")):
        finish(task_of(array, index), host, log=f'GP_METRICS {{"val/loss": {loss}}}')
    finish(task_of(array, 3), host, 1)
    return advance(array)


@pytest.mark.parametrize(
    ("order", "indices"),
    [
        ("parameters.lr", [3, 0, 1, 2]),
        ("-parameters.lr", [2, 1, 0, 3]),
        ("metrics.val/loss", [2, 0, 1, 3]),
        ("-metrics.val/loss", [1, 0, 2, 3]),
        ("state", [3, 0, 1, 2]),
        ("-index", [3, 2, 1, 0]),
    ],
)
def test_headings_sort_numbers_as_numbers(
    browser: Client, owner: User, host: Host, order: str, indices: list[int]
) -> None:
    html = browser.get(f"/arrays/{measured(owner, host).pk}/", {"order": order}).content.decode()
    assert [int(found) for found in re.findall(r'<tr id="task-(\d+)"', html)] == indices
    assert f'aria-sort="{"descending" if order[0] == "-" else "ascending"}"' in html
    assert '<td class="is-number">3.25e-05</td>' in html


def test_all_tasks_are_downloaded_without_formulas(browser: Client, owner: User, host: Host) -> None:
    array = measured(owner, host)
    answer = browser.get(f"/arrays/{array.pk}/tasks.csv")
    lines = list(csv.DictReader(io.StringIO(b"".join(answer).decode())))
    assert [line["index"] for line in lines] == ["0", "1", "2", "3"]
    assert [line["parameters.opt"] for line in lines] == ["'=x", "", "", ""]
    assert [line["parameters.lr"] for line in lines][-1] == "-1"
    assert [line["metrics.val/loss"] for line in lines] == ["0.5", "12", "3.25e-05", ""]
    assert lines[3]["exit_code"] == "1"
    failed = browser.get(f"/arrays/{array.pk}/tasks.csv", {"state": "FAILED"})
    assert b"".join(failed).count(b"\n") == 2
    wrong = browser.get(f"/arrays/{array.pk}/tasks.csv", {"state": "LOST"})
    assert wrong.status_code == 400
    assert "LOST" in wrong.content.decode()
    assert browser_of(make_user()).get(f"/arrays/{array.pk}/tasks.csv").status_code == 404


def test_many_tasks_are_downloaded_in_parts(browser: Client, owner: User) -> None:
    array = make_array(owner, tasks="0-1200")
    with CaptureQueriesContext(connection) as captured:
        text = b"".join(browser.get(f"/arrays/{array.pk}/tasks.csv")).decode()
    assert [line.partition(",")[0] for line in text.splitlines()[1:]] == [str(index) for index in range(1201)]
    assert sum("LIMIT 500" in query["sql"] for query in captured) == 4


def test_a_metric_is_plotted_by_what_is_chosen(browser: Client, owner: User, host: Host) -> None:
    url = f"/arrays/{measured(owner, host).pk}/"
    html = browser.get(url).content.decode()
    assert html.count("data-dot=") == 3
    assert "Task 1: val/loss 12 at 10" in html
    assert "Least: 3.25e-05, by task 2 at 100" in html
    html = browser.get(url, {"x": "index", "y": "secret"}).content.decode()
    assert "Task 1: val/loss 12 at 1" in html
    html = browser.get(url, {"x": "parameters.opt"}).content.decode()
    assert html.count("data-dot=") == 1
    assert "Task 0: val/loss 0.5 at =x" in html


def test_axes_are_of_numbers_powers_or_words() -> None:
    assert [axis_of([0, 5, 10]).place(value) for value in (0, 5, 10, "x")] == [30, 500, 970, None]
    powers = axis_of([0.001, 1, 0.1])
    assert (powers.is_logarithmic, round(powers.place(0.1) or 0), powers.marks) == (True, 657, ("0.001", "1"))
    words = axis_of(["adam", 1, "sgd", True])
    assert words.marks == ("1", "adam", "sgd", "true")
    assert words.place("sgd") == 625
    assert axis_of([7]).place(7) == 500
    assert len(axis_of([f"w{number}" for number in range(50)]).marks) == MAX_WORDS


def test_a_range_is_cancelled_and_retried(browser: Client, owner: User) -> None:
    array = make_array(owner)
    assert browser.post(f"/arrays/{array.pk}/cancel/", {"tasks": "0-1"}).status_code == 302
    assert list(array.tasks.values_list("state", flat=True)) == [TaskState.CANCELLED] * 2 + [TaskState.WAITING]
    browser.post(f"/arrays/{array.pk}/retry/", {"tasks": "1"})
    assert task_of(array, 1).state == TaskState.WAITING
    page = browser.get(f"/arrays/{array.pk}/").content.decode()
    assert "Everything inside the containers is deleted, except for data folders. Retry starts cancelled" in page
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
    logs = f'hx-get="/sessions/{task_of(array, 0).session_id}/logs/"'
    assert 'aria-expanded="false"' in html
    assert logs not in html
    html = browser.get(f"/arrays/{array.pk}/?log=0").content.decode()
    assert 'aria-expanded="true" aria-controls="log-0"' in html
    assert logs in html
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
