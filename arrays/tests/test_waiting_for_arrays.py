"""Sessions and arrays that wait for an array: kinds, ends, ownership, and what the scheduler makes of it."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.urls import reverse

from accounts.models import User
from arrays import services
from arrays.models import Array
from arrays.tests.making import advance, array_body, finish, make_array, task_of
from resources import clock
from resources.models import Host, ResourceGroup
from scheduler.cycle.passes import run_pass
from sessions.lifecycle import Reason, Status
from sessions.models import Dependency, Session
from sessions.sweeps import enforce_deadlines
from specs.tests.worlds import post as post_spec
from tests.api import client_of
from tests.factories import make_host, make_session, make_user, moved_to, run_session

pytestmark = pytest.mark.django_db


@pytest.fixture
def host() -> Host:
    return make_host(cpu=64)


@pytest.fixture
def owner(host: Host) -> User:
    return make_user()


def launch(owner: User, *after: str, url: str = "/api/v1/sessions/", **overrides: Any) -> Any:
    """Return the answer to a launch that waits for these."""
    body = {name: value for name, value in array_body().items() if name != "tasks"}
    return client_of(owner).post(url, body | {"name": "evaluate", "depends_on": after} | overrides, format="json")


def waiting(owner: User, *after: str) -> Session:
    answer = launch(owner, *after)
    assert answer.status_code == 201, answer.content
    return Session.objects.get(pk=answer.json()[0]["id"])


def seen(session: Session) -> tuple[str, str]:
    """Return status and reason after what happens every few seconds."""
    run_pass()
    enforce_deadlines()
    session.refresh_from_db()
    return session.status, session.reason


def end(array: Array, host: Host, *exit_codes: int) -> Array:
    advance(array)
    for index, code in enumerate(exit_codes):
        finish(task_of(array, index), host, code)
    return advance(array)


WAITS = (Status.PENDING, Reason.DEPENDENCY)
STARTS = (Status.SCHEDULED, Reason.ASSIGNED)
CANCELLED = (Status.CANCELLED, Reason.DEPENDENCY_FAILED)


@pytest.mark.parametrize(
    ("kind", "exit_codes", "wanted", "detail"),
    [
        ("after_ok", (0, 0), STARTS, ""),
        ("after_ok", (0, 3), CANCELLED, "It depends on sweep, which has ended without success."),
        ("after_not_ok", (0, 3), STARTS, ""),
        ("after_not_ok", (0, 0), CANCELLED, "It was to start only if sweep fails, which has succeeded."),
        ("after_any", (3, 3), STARTS, ""),
        ("after_ok", (0,), WAITS, ""),
        ("after_not_ok", (3,), WAITS, ""),
        ("after_any", (3,), WAITS, ""),
        ("after", (), WAITS, ""),
        ("after", (3,), STARTS, ""),
    ],
)
def test_kinds_ask_the_whole_array(
    owner: User, host: Host, kind: str, exit_codes: tuple[int, ...], wanted: tuple[str, str], detail: str
) -> None:
    array = make_array(owner, tasks="0-1")
    session = waiting(owner, f"{kind}:{array.pk}")
    assert seen(session) == WAITS
    end(array, host, *exit_codes)
    assert seen(session) == wanted
    if detail:
        assert session.detail == detail


def test_a_running_task_is_a_start(owner: User, host: Host) -> None:
    array = advance(make_array(owner))
    session = waiting(owner, f"after:{array.pk}")
    task = task_of(array, 1).session
    assert task is not None
    moved_to(Status.RUNNING, task, host)
    assert advance(array).started_at == Session.objects.get(pk=task.pk).started_at
    assert seen(session) == STARTS


@pytest.mark.parametrize(("column", "is_noted"), [("state", True), ("started_at", True), ("reason", False)])
def test_the_scheduler_reads_waiting_sessions_anew(owner: User, column: str, is_noted: bool) -> None:
    array = make_array(owner)
    session = waiting(owner, array.pk)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM compute_change")
        value = {"state": "HELD", "started_at": clock.now(), "reason": "x"}[column]
        Array.objects.filter(pk=array.pk).update(**{column: value})
        cursor.execute("SELECT sessions FROM compute_change")
        assert cursor.fetchall() == [([session.pk],)] * is_noted


def test_a_start_is_remembered_without_its_events(owner: User, host: Host) -> None:
    target = run_session(owner=owner, host=host)
    target.move_to(Status.TERMINATED, Reason.CONTAINER_EXITED)
    target.events.all().delete()
    assert seen(waiting(owner, f"after:{target.pk}")) == STARTS


def test_what_never_starts_cancels_whom_it_concerns(owner: User) -> None:
    array = make_array(owner)
    session = waiting(owner, f"after:{array.pk}")
    services.cancel(array, actor=owner)
    assert seen(session) == CANCELLED
    assert session.detail == "It was to start after sweep, which has ended without starting."
    refused = launch(owner, array.pk)
    assert refused.status_code == 400
    assert "sweep" in str(refused.json()["errors"]["depends_on"])


def test_several_targets_must_all_come(owner: User, host: Host) -> None:
    first, second = make_array(owner, tasks="0"), make_array(owner, tasks="0", name="second")
    third = run_session(owner=owner, host=host)
    session = waiting(owner, first.pk, f"afterany:{second.pk}:{third.pk}")
    end(first, host, 0)
    assert seen(session) == WAITS
    third.move_to(Status.TERMINATED, Reason.CONTAINER_EXITED)
    assert seen(session) == WAITS
    end(second, host, 3)
    assert seen(session) == STARTS


def test_a_retried_array_is_waited_for_again(owner: User, host: Host) -> None:
    array = end(make_array(owner, tasks="0"), host, 3)
    session = waiting(owner, f"after_any:{array.pk}")
    services.retry(array, actor=owner)
    assert seen(session) == WAITS
    end(array, host, 0)
    assert seen(session) == STARTS


def test_the_pending_timeout_counts_from_the_end(owner: User, host: Host) -> None:
    ResourceGroup.objects.update(pending_timeout=timedelta(hours=1))
    array = make_array(owner, tasks="0")
    session = waiting(owner, f"after_any:{array.pk}")
    Host.objects.update(is_cordoned=True)
    Session.objects.filter(pk=session.pk).update(status_at=clock.now() - timedelta(hours=2))
    assert seen(session) == WAITS
    Host.objects.update(is_cordoned=False)
    end(array, host, 0)
    Host.objects.update(is_cordoned=True)
    assert seen(session)[0] == Status.PENDING
    Array.objects.update(ended_at=clock.now() - timedelta(hours=2))
    assert seen(session) == (Status.CANCELLED, Reason.PENDING_TIMEOUT)


def test_only_own_arrays_are_found(owner: User, host: Host) -> None:
    stranger, boss = make_user(), make_user(is_superuser=True)
    array = make_array(owner)
    for other in (stranger, boss):
        answer = launch(other, array.pk)
        assert answer.status_code == 400
        assert answer.json()["errors"] == {"depends_on": [f"There is no session or array {array.pk!r} of yours."]}
    assert not Dependency.objects.exists()


def test_answers_show_arrays_by_kind(owner: User, host: Host) -> None:
    array = make_array(owner, tasks="0")
    session = waiting(owner, f"afterany:{array.pk}")
    url = f"/api/v1/sessions/{session.pk}/"
    shown = client_of(owner).get(url).json()
    assert shown["depends_on"] == [array.pk]
    row = {"session": None, "array": array.pk, "name": "sweep", "kind": "after_any", "state": "waiting"}
    assert shown["dependencies"] == [row]
    end(array, host, 0)
    assert client_of(owner).get(url).json()["dependencies"] == [row | {"state": "met"}]


def test_pages_show_arrays_with_words(owner: User, host: Host) -> None:
    client = Client()
    client.force_login(owner)
    array = make_array(owner, tasks="0")
    session = waiting(owner, array.pk)
    page = client.get(reverse("sessions:detail", args=[session.pk])).content.decode()
    assert f'<a href="/arrays/{array.pk}/">sweep</a> once it has succeeded' in page
    assert "array, 0 of 1 tasks have ended" in page
    form = client.get(reverse("sessions:launch")).content.decode()
    assert f'value="after_any:{array.pk}"' in form


def test_an_estimate_says_that_it_waits(owner: User) -> None:
    array = make_array(owner)
    body = {name: value for name, value in array_body().items() if name not in ("tasks", "name")}
    answer = client_of(owner).post("/api/v1/sessions/estimate/", body | {"depends_on": [array.pk]}, format="json")
    assert (answer.json()["starts"], answer.json()["reason"]) == (None, "It waits for what it depends on.")


def test_an_array_waits_for_an_array(owner: User, host: Host) -> None:
    first = make_array(owner, tasks="0")
    answer = launch(owner, first.pk, url="/api/v1/arrays/", tasks="0-1")
    assert answer.status_code == 201, answer.content
    second = advance(Array.objects.get(pk=answer.json()["id"]))
    task = task_of(second, 0).session
    assert task is not None
    assert seen(task) == WAITS
    end(first, host, 3)
    assert seen(task) == CANCELLED
    second = advance(second)
    assert (second.state, second.reason) == ("CANCELLED", task.detail)


def test_a_spec_file_has_array_and_evaluation(owner: User, host: Host) -> None:
    array_body()
    amounts = "image: team/array:1\ncpu: 1\nmemory: 1g\ncommand: run\n"
    text = (
        f"kind: session\nname: evaluate\n{amounts}depends_on: [sweep]\n"
        f"---\nkind: array\nname: sweep\n{amounts}tasks: 0-1\ndepends_on: [{{document: data-set, kind: after_any}}]\n"
        f"---\nkind: session\nname: data-set\n{amounts}"
    )
    answer = post_spec(owner, text)
    assert answer.status_code == 201, answer.json()
    array, data = Array.objects.get(), Session.objects.get(name="data-set")
    assert array.request["depends_on"] == [f"after_any:{data.pk}"]
    [link] = Dependency.objects.all()
    assert (link.from_session.name, link.kind, link.target) == ("evaluate", "after_ok", array)
    assert set(advance(array).tasks.values_list("session__dependencies__to_session", flat=True)) == {data.pk}


def test_scripts_of_slurm_name_arrays(owner: User, host: Host) -> None:
    array = make_array(owner)
    script = f"#!/bin/bash\n#SBATCH --dependency=afterok:{array.pk}\n#GP --image team/array:1\n:\n"
    answer = post_spec(owner, script)
    assert answer.status_code == 201, answer.json()
    assert Dependency.objects.get().target == array
    more = post_spec(owner, script.replace("--dependency", "--array=0-3 --dependency"))
    assert more.status_code == 201, more.json()
    assert Array.objects.exclude(pk=array.pk).get().request["depends_on"] == [f"after_ok:{array.pk}"]


def test_a_dependency_has_one_target(owner: User, host: Host) -> None:
    array, session = make_array(owner), make_session(owner=owner, resource_group=host.group)
    for targets in ({}, {"to_array": array, "to_session": session}):
        with pytest.raises(IntegrityError), transaction.atomic():
            Dependency.objects.create(from_session=session, **targets)
