"""Arrays over the API: submitted, listed, changed, cancelled and retried, each by whom it is theirs to."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from accounts.models import User
from arrays import services
from arrays.models import COUNTS, Array
from arrays.tests.making import advance, array_body, finish, make_array, task_of
from resources.models import Host
from sessions.models import Session
from tests.api import client_of
from tests.factories import make_host, make_project, make_user, run_session

URL = "/api/v1/arrays/"
pytestmark = pytest.mark.django_db


@pytest.fixture
def host() -> Host:
    return make_host(cpu=64)


@pytest.fixture
def owner(host: Host) -> User:
    return make_user()


@pytest.fixture
def api(owner: User) -> APIClient:
    return client_of(owner)


def test_an_array_is_submitted_and_shown(api: APIClient, owner: User) -> None:
    space = {"grid": {"lr": [0.1, 0.01], "seed": {"from": 0, "to": 4}}}
    answer = api.post(URL, array_body(tasks=space, max_parallel=4, retries=1, time_limit="2h"), format="json")
    assert answer.status_code == 201, answer.content
    shown = answer.json()
    assert (
        shown.items()
        >= {
            **{"name": "sweep", "owner": owner.email, "project": None, "state": "ACTIVE", "size": 10, "first_index": 0},
            **{"last_index": 9, "max_parallel": 4, "retries": 1, "space": space, "ended_at": None, "reason": ""},
        }.items()
    )
    assert shown["counts"] == dict.fromkeys(COUNTS, 0) | {"waiting": 10}
    assert shown["request"]["command"] == "train"
    assert api.get(f"{URL}{shown['id']}/").json() == shown
    tasks = api.get(f"{URL}{shown['id']}/tasks/").json()["results"]
    assert [task["parameters"] for task in tasks[:2]] == [{"lr": 0.1, "seed": 0}, {"lr": 0.1, "seed": 1}]


@pytest.mark.parametrize(
    ("wrong", "fields"),
    [
        ({"tasks": "5-1"}, {"tasks"}),
        ({"tasks": None}, {"tasks"}),
        ({"tasks": {"grid": {f"a{number}": list(range(10)) for number in range(12)}}}, {"tasks"}),
        ({"tasks": "0-10000"}, {"tasks"}),
        ({"max_parallel": 0}, {"max_parallel"}),
        ({"retries": 11}, {"retries"}),
        ({"count": 2}, {"count"}),
        ({"command": ""}, {"command"}),
        ({"command": None}, {"command"}),
        ({"cluster": {"size": 2}}, {"cluster"}),
        ({"name": "x"}, {"name"}),
        ({"name": "x" * 63}, {"name"}),
        ({"image": "team/other:1"}, {"image"}),
        ({"cpu": 0}, {"cpu"}),
        ({"cpu": 10_000}, {"cpu"}),
        ({"env": {"LD_PRELOAD": "x"}}, {"env"}),
        ({"env": {"lr": "x"}, "tasks": {"grid": {"lr": [1]}}}, {"env"}),
        ({"tasks": {"list": [{"a": "longest"}, {"LD_PRELOAD": "x"}]}}, {"tasks"}),
        ({"weight": 5}, {"weight"}),
    ],
)
def test_bad_input_is_refused_at_its_field(api: APIClient, wrong: dict[str, Any], fields: set[str]) -> None:
    answer = api.post(URL, array_body(**wrong), format="json")
    assert answer.status_code == 400, answer.content
    assert set(answer.json()["errors"]) == fields
    assert not Array.objects.exists()


def test_a_name_is_taken_until_its_array_ends(api: APIClient) -> None:
    api.post(URL, array_body(), format="json")
    answer = api.post(URL, array_body(), format="json")
    assert (answer.status_code, set(answer.json()["errors"])) == (400, {"name"})


def test_tasks_are_filtered_and_ordered(api: APIClient, owner: User, host: Host) -> None:
    array = advance(make_array(owner, tasks={"grid": {"lr": [0.1, 0.01], "opt": ["sgd", "adam"]}}))
    finish(task_of(array, 2), host, log='GP_METRICS {"loss": 0.25}')
    finish(task_of(array, 1), host, log='GP_METRICS {"loss": 0.5, "val/top__1": 3, "note": "x"}')
    finish(task_of(array, 3), host, 7)
    advance(array)
    address = f"{URL}{array.pk}/tasks/"

    def indices(query: str) -> list[int]:
        answer = api.get(f"{address}?{query}")
        assert answer.status_code == 200, answer.content
        return [task["index"] for task in answer.json()["results"]]

    assert indices("state=SUCCEEDED") == [1, 2]
    assert indices("parameter=lr=0.01") == [2, 3]
    assert indices("parameter=opt=adam&order=-index") == [3, 1]
    assert indices("order=metrics.loss") == [2, 1, 0, 3]
    assert indices("order=-metrics.loss")[:2] == [1, 2]
    assert indices("order=metrics.val/top__1")[0] == 1
    assert indices("order=parameters.lr")[:2] == [2, 3]
    assert indices("page_size=1&page=2") == [1]
    assert api.get(f"{address}?order=password").status_code == 400
    assert api.get(f"{address}3/").json().items() >= {"state": "FAILED", "exit_code": 7, "attempts": 1}.items()
    assert api.get(f"{address}3/logs/").status_code == 200
    assert b"loss" in api.get(f"{address}1/logs/").content
    assert api.get(f"{address}9/").status_code == 404


def test_the_output_of_a_tasks_earlier_attempt_is_shown(api: APIClient, owner: User, host: Host) -> None:
    array = advance(make_array(owner, tasks="0-1"))
    address = f"{URL}{array.pk}/tasks/0/logs/"
    finish(task_of(array, 0), host, 3, "first\n")
    finish(task_of(array, 1), host, 3, "another\n")
    assert api.get(address, {"previous": "true"}).content == b""
    services.retry(advance(array), actor=owner)
    advance(array)
    finish(task_of(array, 0), host, 0, "second\n")
    assert api.get(address, {"previous": "true"}).content == b"first"
    assert api.get(address).content == b"second"
    Session.objects.filter(pk=task_of(array, 0).session_id).update(previous_output="between")
    assert api.get(address, {"previous": "true"}).content == b"between"


def test_tasks_are_cancelled_and_retried_by_range(api: APIClient, owner: User) -> None:
    array = make_array(owner, tasks="0-9")
    answer = api.post(f"{URL}{array.pk}/cancel/", {"tasks": "[2-4,9]"}, format="json")
    assert answer.json()["counts"]["cancelled"] == 4
    answer = api.post(f"{URL}{array.pk}/retry/", {"tasks": "9"}, format="json")
    assert (answer.json()["counts"]["cancelled"], answer.json()["counts"]["waiting"]) == (3, 7)
    assert api.post(f"{URL}{array.pk}/cancel/", {"tasks": "x"}, format="json").status_code == 400
    for act in ("cancel", "retry"):
        answer = api.post(f"{URL}{array.pk}/{act}/", {"tasks": "8,10-12"}, format="json")
        assert answer.json()["errors"] == {"tasks": ["This array has no task 10, 11, 12."]}
    answer = api.post(f"{URL}{array.pk}/cancel/", {"tasks": "8-99"}, format="json")
    assert "19, ..." in answer.json()["errors"]["tasks"][0]
    assert task_of(array, 8).state == "WAITING"
    answer = api.post(f"{URL}{array.pk}/cancel/", {}, format="json")
    assert answer.json()["state"] == "CANCELLED"


def test_an_array_is_held_released_and_changed(api: APIClient, owner: User) -> None:
    address = f"{URL}{make_array(owner).pk}/"
    assert api.post(f"{address}hold/").json()["state"] == "HELD"
    assert api.post(f"{address}release/").json()["state"] == "ACTIVE"
    answer = api.patch(address, {"max_parallel": 2, "name": "other"}, format="json").json()
    assert (answer["max_parallel"], answer["name"]) == (2, "other")
    assert api.patch(address, {"max_parallel": None}, format="json").json()["max_parallel"] is None
    assert api.patch(address, {"name": "-"}, format="json").status_code == 400
    api.post(f"{address}cancel/")
    assert api.patch(address, {"max_parallel": 3}, format="json").status_code == 400


def test_lists_show_arrays_in_place_of_their_sessions(api: APIClient, owner: User, host: Host) -> None:
    array = advance(make_array(owner))
    alone = run_session(owner=owner, host=host)
    rows = api.get("/api/v1/sessions/").json()["results"]
    assert [row["id"] for row in rows] == [alone.pk]
    rows = api.get(f"/api/v1/sessions/?array={array.pk}").json()["results"]
    assert {row["id"] for row in rows} == set(Session.objects.filter(is_task=True).values_list("pk", flat=True))
    assert len(rows) == 3


def test_a_list_costs_the_same_for_any_number(api: APIClient, owner: User) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert api.get(f"{URL}?ended=false").status_code == 200
        return len(captured)

    make_array(owner)
    first = queries()
    for number in range(3):
        make_array(owner, name=f"sweep{number}")
    assert queries() == first


def test_what_runs_is_shown_to_its_owner_alone(host: Host) -> None:
    owner, manager = make_user(), make_user()
    array = make_array(owner, project=make_project(owner, managers=[manager]).name, env={"KEY": "secret"})
    shown = client_of(manager).get(f"{URL}{array.pk}/").json()
    assert shown["request"] is None
    assert shown["project"] is not None
    assert client_of(make_user()).get(f"{URL}{array.pk}/").status_code == 404
