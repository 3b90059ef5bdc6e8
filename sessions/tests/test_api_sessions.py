"""Sessions over the API: launch, list, show, terminate; only the caller's."""

from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from accounts.models import User
from resources.amounts.units import GIB, MIB
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from tests.api import client_of
from tests.factories import make_group, make_host, make_image, make_preset, make_session, make_user, run_session

URL = "/api/v1/sessions/"
pytestmark = pytest.mark.django_db


OF_A_NEW_SESSION: dict[str, Any] = {
    "name": "train",
    "project": None,
    "status": "PENDING",
    "reason": "SUBMITTED",
    "environment": "PyTorch",
    "version": "2.5",
    "waits": [],
    "gpu_model": "",
    "min_gpu_memory": 0,
    "gpu_memory": 0,
    "min_fgpu": "0",
    "cpu": 2,
    "cpu_guaranteed_milli": 2000,
    "memory": 4 * GIB,
    "shared_memory": 64 * MIB,
    "fgpu": "0.35",
    "host": None,
    "gpus": [],
    "env": {"SEED": "7", "N": "3"},
    "priority": 10,
    "kind": "interactive",
    "command": "",
    "cluster": None,
    "time_limit": None,
    "not_before": None,
    "depends_on": [],
    "dependencies": [],
    "eta": None,
    "eta_reason": "",
    "estimate": None,
    "result": "",
    "attempt": 0,
    "exit_code": None,
    "started_at": None,
    "ends_at": None,
    "idle_ends_at": None,
    "ended_at": None,
    "last_activity_at": None,
    "ssh": "",
    "apps": [],
    "mounts": [],
    "preemptible": False,
    "preempt_by": None,
    "preemptions": 0,
    "resizing": None,
}  # beside what depends on the rows of the test


@pytest.fixture
def user() -> User:
    return make_user()


def end(session: Session, status: Status = Status.CANCELLED) -> Session:
    session.move_to(status, Reason.USER_REQUEST)
    return session


def names(user: User, **query: str) -> list[str]:
    return [row["name"] for row in client_of(user).get(URL, query).json()["results"]]


def test_an_order_by_amounts_is_queued_and_shown(user: User) -> None:
    host, image = make_host(gpus=1), make_image(environment="PyTorch", version="2.5")
    order = {
        "image": image.reference,
        "name": "train",
        "cpu": 2,
        "memory": "4g",
        "shared_memory": "64m",
        "fgpu": "0.35",
    }
    response = client_of(user).post(URL, order | {"env": {"SEED": "7", "N": 3}})
    assert response.status_code == 201, response.json()
    [row] = response.json()
    session = Session.objects.get()
    assert row.pop("created_at") == row.pop("status_at")
    assert row == OF_A_NEW_SESSION | {
        "id": session.pk,
        "owner": user.email,
        "detail": "Submitted; waiting for the scheduler",
        "image": image.reference,
        "resource_group": host.group.name,
        "resource_groups": [host.group.name],
    }
    assert client_of(user).get(f"{URL}{session.pk}/").json()["id"] == session.pk


def test_a_request_accepts_environment_version_preset_and_count(user: User) -> None:
    host, image = make_host(gpus=1), make_image()
    make_preset(name="small", cpu=4)
    make_preset(name="small", group=host.group, cpu=2, fgpu=250)
    order = {"environment": image.environment, "version": image.version, "preset": "small", "count": 3, "name": "many"}
    response = client_of(user).post(URL, order)
    assert response.status_code == 201, response.json()
    assert [(row["name"], row["cpu"], row["fgpu"]) for row in response.json()] == [
        ("many-1", 2, "0.25"),
        ("many-2", 2, "0.25"),
        ("many-3", 2, "0.25"),
    ]


@pytest.mark.parametrize("number", ["0.1", "0.35", "0.29", "1.1", "1e-1"])
def test_a_json_number_of_fgpu_is_taken_exactly(user: User, number: str) -> None:
    make_host(gpus=1)
    body = f'{{"image": "{make_image().reference}", "cpu": 1, "memory": 1073741824, "fgpu": {number}}}'
    response = client_of(user).post(URL, body, content_type="application/json")
    assert response.status_code == 201, response.json()
    assert Session.objects.get().fgpu == round(float(number) * 1000)


def test_the_group_is_required_with_several_groups(user: User) -> None:
    first, second = make_host(group=make_group(name="a")), make_host(group=make_group(name="b"))
    order = {"image": make_image().reference, "cpu": 1, "memory": "1g"}
    answer = client_of(user).post(URL, order)
    assert (answer.status_code, answer.json()["errors"]) == (
        400,
        {"resource_group": ["Choose one of your resource groups: a, b."]},
    )
    answer = client_of(user).post(URL, order | {"resource_group": "b"})
    assert [row["resource_group"] for row in answer.json()] == [second.group.name]
    assert first.sessions.count() == 0


def test_without_a_group_the_message_names_administrators(user: User) -> None:
    answer = client_of(user).post(URL, {"image": make_image().reference, "cpu": 1, "memory": "1g"})
    assert answer.json()["errors"] == {
        "resource_group": ["You may not use any resource group yet; ask an administrator."]
    }


def test_only_superadmins_may_raise_the_priority() -> None:
    make_host()
    order = {"image": make_image().reference, "cpu": 1, "memory": "1g", "priority": 11}
    answer = client_of(make_user()).post(URL, order)
    assert (answer.status_code, answer.json()["errors"]) == (
        400,
        {"priority": ["Your policies allow a priority of at most 10."]},
    )
    assert client_of(make_user()).post(URL, order | {"priority": 9}).status_code == 201
    assert client_of(make_user(is_superuser=True)).post(URL, order).json()[0]["priority"] == 11


def test_a_running_session_shows_host_and_shares(user: User) -> None:
    session = run_session(make_session(owner=user, fgpu=2500))
    row = client_of(user).get(f"{URL}{session.pk}/").json()
    assert (row["status"], row["host"], row["attempt"]) == ("RUNNING", session.host.name if session.host else "", 1)
    assert [(share["fgpu"], share["tier"]) for share in row["gpus"]] == [("2", "hook"), ("0.5", "hook")]
    assert row["started_at"] is not None


def test_the_list_is_newest_first_and_mine_alone(user: User) -> None:
    for name in ("first", "second", "third"):
        make_session(owner=user, name=name)
    make_session(name="not mine")
    assert names(user) == ["third", "second", "first"]
    assert "not mine" in names(make_user(is_superuser=True))


def test_the_list_filters_by_tab_status_name_owner(user: User) -> None:
    make_session(owner=user, name="waiting")
    end(make_session(owner=user, name="cancelled"))
    end(run_session(make_session(owner=user, name="failed")), Status.ERROR)
    other = make_session(name="of-other")
    superadmin = make_user(is_superuser=True)
    assert [names(user, tab=tab) for tab in ("running", "finished", "others")] == [
        ["waiting"],
        ["cancelled"],
        ["failed"],
    ]
    assert names(user, status="PENDING") == ["waiting"]
    assert names(user, name="AIL") == ["failed"]
    assert names(superadmin, owner=other.owner.email) == ["of-other"]
    assert names(user, owner=other.owner.email) == []


@pytest.mark.parametrize(
    "query", [{"tab": "all"}, {"status": "running"}, {"name": "\0"}, {"name": "x" * 65}, {"owner": "a\0b"}]
)
def test_a_wrong_filter_is_refused_by_name(user: User, query: dict[str, str]) -> None:
    answer = client_of(user).get(URL, query)
    assert (answer.status_code, list(answer.json()["errors"])) == (400, list(query))


@pytest.mark.parametrize("rows", [1, 20])
def test_the_list_takes_a_constant_number_of_queries(
    rows: int, user: User, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for _ in range(rows):
        run_session(make_session(owner=user, fgpu=2500))
    with django_assert_num_queries(8):
        body = client_of(user).get(URL).json()
    assert body["count"] == rows
    assert len(body["results"][-1]["gpus"]) == 2


@pytest.mark.parametrize("count", [2, 20])
def test_submitting_takes_a_constant_number_of_queries(
    count: int, user: User, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    make_host()
    order = {"image": make_image().reference, "cpu": 1, "memory": "1g", "count": count}
    with django_assert_num_queries(17):
        assert len(client_of(user).post(URL, order).json()) == count


def test_terminate_returns_the_session_and_is_idempotent(user: User) -> None:
    waiting, running = make_session(owner=user), run_session(make_session(owner=user))
    for session, status in ((waiting, "CANCELLED"), (running, "TERMINATING")):
        answers = [client_of(user).post(f"{URL}{session.pk}/terminate/") for _ in range(2)]
        assert [(answer.status_code, answer.json()["status"]) for answer in answers] == [(200, status)] * 2
    assert waiting.events.filter(new_status="CANCELLED").count() == 1


def test_events_list_status_changes_with_actors(user: User) -> None:
    session = run_session(make_session(owner=user))
    client_of(user).post(f"{URL}{session.pk}/terminate/")
    rows = client_of(user).get(f"{URL}{session.pk}/events/").json()["results"]
    assert [row["new_status"] for row in rows] == ["SCHEDULED", "PREPARING", "RUNNING", "TERMINATING"]
    assert [row["actor"] for row in rows] == [None, None, None, user.email]


@pytest.mark.parametrize("rows", [1, 20])
def test_events_take_a_constant_number_of_queries(
    rows: int, user: User, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    session = make_session(owner=user)
    for _ in range(rows):
        session.events.create(new_status="PENDING", reason="SUBMITTED", actor=make_user())
    with django_assert_num_queries(6):
        assert len(client_of(user).get(f"{URL}{session.pk}/events/").json()["results"]) == rows


def test_the_output_of_an_earlier_attempt_is_asked_for(user: User) -> None:
    session = make_session(owner=user, previous_output="one\ntwo\n")
    answer = client_of(user).get(f"{URL}{session.pk}/logs/", {"tail": "1", "previous": "true"})
    assert answer.content.decode() == "two"
    assert client_of(user).get(f"{URL}{session.pk}/logs/").content == b""
    assert client_of(make_user()).get(f"{URL}{session.pk}/logs/", {"previous": "true"}).status_code == 404


def test_logs_are_plain_text_from_the_end(user: User) -> None:
    session = make_session(owner=user, log_tail="one\ntwo\nthrée\n")
    end(session)
    answer = client_of(user).get(f"{URL}{session.pk}/logs/", {"tail": 2}, headers={"accept": "text/plain"})
    assert (answer.status_code, answer["Content-Type"]) == (200, "text/plain; charset=utf-8")
    assert answer.content.decode() == "two\nthrée"


@pytest.mark.parametrize("accept", ["application/json", "text/plain", "*/*"])
def test_logs_that_cannot_be_read_now_say_why(user: User, accept: str) -> None:
    host = make_host(name="far-away")
    session = run_session(make_session(owner=user, resource_group=host.group), host=host)
    answer = client_of(user).get(f"{URL}{session.pk}/logs/", headers={"accept": accept})
    assert answer.status_code == 503
    assert "it has no gateway" in answer.content.decode()


@pytest.mark.parametrize("tail", ["0", "-1", "x", "1000000", "9" * 5000])
def test_a_wrong_tail_is_refused(user: User, tail: str) -> None:
    answer = client_of(user).get(f"{URL}{make_session(owner=user).pk}/logs/", {"tail": tail})
    assert (answer.status_code, list(answer.json()["errors"])) == (400, ["tail"])


CALLS = [("get", ""), ("get", "events/"), ("get", "logs/"), ("post", "terminate/")]


@pytest.mark.parametrize(("method", "path"), CALLS)
def test_other_users_sessions_are_404(user: User, method: str, path: str) -> None:
    session = make_session()
    for key in (session.pk, "a" * 16, "nothing", "%00", "A" * 16):
        assert getattr(client_of(user), method)(f"{URL}{key}/{path}").status_code == 404
    session.refresh_from_db()
    assert session.status == Status.PENDING


@pytest.mark.parametrize(("method", "path"), CALLS)
def test_a_stranger_is_401(method: str, path: str) -> None:
    assert getattr(client_of(), method)(f"{URL}{make_session().pk}/{path}").status_code == 401
    assert client_of().get(URL).status_code == client_of().post(URL, {}).status_code == 401


def test_superadmins_see_all_sessions_without_variables() -> None:
    session = make_session(environment={"TOKEN": "secret"})
    client = client_of(make_user(is_superuser=True))
    answer: Any = client.post(f"{URL}{session.pk}/terminate/").json()
    assert (answer["status"], answer["reason"], answer["env"]) == ("CANCELLED", "ADMIN_REQUEST", None)


@pytest.mark.parametrize("method", ["put", "delete"])
def test_a_session_cannot_be_written_past_the_verbs(user: User, method: str) -> None:
    session = make_session(owner=user)
    assert getattr(client_of(user), method)(f"{URL}{session.pk}/", {"status": "RUNNING"}).status_code == 405


def test_the_list_is_searched_and_ordered() -> None:
    user = make_user()
    make_session(owner=user, name="train-b", cpu=2)
    make_session(owner=user, name="train-a", cpu=3)
    make_session(owner=user, name="other", cpu=1)

    def names(query: str) -> list[str]:
        return [row["name"] for row in client_of(user).get(f"{URL}?{query}").json()["results"]]

    assert names("search=train&order=name") == ["train-a", "train-b"]
    assert names("order=-cpu") == ["train-a", "train-b", "other"]
    assert names("resource_group=nowhere") == []
    assert list(client_of(user).get(f"{URL}?order=secret").json()["errors"]) == ["order"]


def test_several_sessions_are_ended_or_none() -> None:
    user = make_user()
    mine, strange = [make_session(owner=user) for _ in range(2)], make_session()
    ids = [session.pk for session in mine]
    refused = client_of(user).post(f"{URL}terminate/", {"ids": [*ids, strange.pk]})
    assert (refused.status_code, list(refused.json()["errors"])) == (400, ["ids"])
    assert Session.objects.filter(status=Status.PENDING).count() == 3
    for _ in range(2):
        answer = client_of(user).post(f"{URL}terminate/", {"ids": ids})
        assert (answer.status_code, {row["status"] for row in answer.json()}) == (200, {"CANCELLED"})
    assert Session.objects.get(pk=strange.pk).status == Status.PENDING


def test_pages_of_events_go_on_by_a_cursor() -> None:
    session = run_session()
    client = client_of(session.owner)
    first = client.get(f"{URL}{session.pk}/events/?page_size=2").json()
    rest = client.get(first["next"]).json()
    assert [row["new_status"] for row in first["results"] + rest["results"]] == ["SCHEDULED", "PREPARING", "RUNNING"]
    assert (rest["next"], first["previous"]) == (None, None)


def test_what_a_session_waits_for_is_told_by_kind(user: User) -> None:
    host, image = make_host(), make_image()
    first, second = make_session(owner=user, name="first"), make_session(owner=user, name="second")
    third = run_session(host=host, owner=user, name="third")
    order = {"image": image.reference, "resource_group": host.group.name, "cpu": 1, "memory": "1g"}
    asked = [first.pk, f"afternotok:{second.pk}", {"session": third.pk, "kind": "after"}]
    answer = client_of(user).post(URL, order | {"depends_on": asked})
    assert answer.status_code == 201, answer.json()
    [shown] = answer.json()
    assert shown["depends_on"] == sorted([first.pk, second.pk, third.pk])
    end(second)
    assert client_of(user).get(f"{URL}{shown['id']}/").json()["dependencies"] == [
        {"session": first.pk, "array": None, "name": "first", "kind": "after_ok", "state": "waiting"},
        {"session": second.pk, "array": None, "name": "second", "kind": "after_not_ok", "state": "met"},
        {"session": third.pk, "array": None, "name": "third", "kind": "after", "state": "met"},
    ]
    refused = client_of(user).post(URL, order | {"depends_on": [f"after:{second.pk}"]}).json()["errors"]
    assert refused == {
        "depends_on": [f"second ({second.pk}) has ended before it started, so this session would never start."]
    }
