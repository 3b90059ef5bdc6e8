"""What a container says is believed as far as it is harmless, and no import outlives its session."""

import json
import threading
from datetime import timedelta
from typing import Any

import pytest
from pytest_django import Settings

from imports import credentials, services
from imports.models import Import, ImportState
from imports.requests import ImportRequest
from imports.runs import progress
from imports.runs.findings import last_message
from imports.tests.making import ADDRESS, make_world
from resources import clock
from sessions.launching import services as sessions
from sessions.lifecycle import Status
from sessions.models import Session
from tests.api import client_of
from tests.factories import make_user, moved_to
from tests.wait import SECONDS

pytestmark = pytest.mark.django_db


@pytest.fixture
def look() -> Import:
    return services.look(make_world()[0], ImportRequest(address=ADDRESS))


def ended(look: Import, log: str, status: Status = Status.TERMINATED) -> Import:
    """Return the import after its session has ended with this log, and the sweep has seen it."""
    session = moved_to(status, Session.objects.get(pk=look.session_id))
    Session.objects.filter(pk=session.pk).update(log_tail=log, ended_at=clock.now() - timedelta(minutes=1))
    progress.advance_all()
    look.refresh_from_db()
    return look


def test_the_log_of_an_ended_session_has_the_result(look: Import) -> None:
    log = '{"progress": "x", "bytes": 1}\n{"found": {"files": 3, "path": "a.ipynb"}}\n'
    assert ended(look, log).state == ImportState.DONE
    assert (look.found, look.path) == ({"files": 3, "path": "a.ipynb"}, "a.ipynb")


def test_the_branch_and_the_path_are_told_apart() -> None:
    made = services.look(make_world()[0], ImportRequest(address=f"{ADDRESS}/blob/feature/x/a/b.ipynb"))
    assert (made.ref, made.path) == ("feature", "x/a/b.ipynb")
    assert ended(made, '{"found": {"branch": "feature/x", "path": "a/b.ipynb"}}').ref == "feature/x"
    assert made.path == "a/b.ipynb"


def test_a_forged_branch_changes_no_ref() -> None:
    made = services.look(make_world()[0], ImportRequest(address=f"{ADDRESS}/tree/main"))
    assert ended(made, '{"found": {"branch": "other", "path": "a"}}').ref == "main"


def test_a_forged_result_breaks_no_list(look: Import) -> None:
    forged = {"devcontainer": {"cpus": "x", "memory": [1], "gpu": "<b>", "image": 7}, "frameworks": {"torch": 1}}
    ended(look, json.dumps({"found": forged}))
    assert look.found == {"devcontainer": {}, "frameworks": {"torch": ""}}
    response = client_of(make_user(is_superuser=True)).get("/api/v1/imports/")
    assert response.status_code == 200


def test_a_problem_is_told(look: Import) -> None:
    assert ended(look, '{"problem": "It is private."}').state == ImportState.FAILED
    assert look.problem == "It is private."


@pytest.mark.parametrize("log", ["", "Killed", '{"found": ', '{"progress": "x", "bytes": 5}'])
def test_a_session_that_dies_takes_its_import_along(look: Import, log: str) -> None:
    assert ended(look, log, Status.ERROR).state == ImportState.FAILED
    assert look.problem.startswith("Its session ended first.")


def test_an_import_that_was_cancelled_stays_so(look: Import) -> None:
    services.cancel(look, actor=look.owner)
    progress.advance_all()
    look.refresh_from_db()
    assert look.state == ImportState.CANCELLED


def test_a_host_that_is_not_reached_is_asked_again(look: Import, settings: Settings) -> None:
    moved_to(Status.RUNNING, Session.objects.get(pk=look.session_id))
    assert progress.advance_all() == 1
    look.refresh_from_db()
    assert (look.state, look.begun_attempt) == (ImportState.WAITING, 0)


def test_silent_containers_are_asked_ever_less_often() -> None:
    now = 0.0
    pauses = progress.Pauses(lambda: now)
    looks = []
    while now < 300:
        if not pauses.holds(1):
            looks.append(now)
            pauses.lengthen(1)
        now += 1
    assert looks == [0, 1, 3, 7, 15, 31, 63, 123, 183, 243]
    assert not pauses.holds(2)
    pauses.end(1)
    assert not pauses.holds(1)


@pytest.mark.django_db(transaction=True)
def test_owners_are_looked_at_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    both, seen = threading.Barrier(2, timeout=SECONDS), list[Import]()
    owner, _image = make_world()
    for each in (owner, make_user()):
        for number in range(2):
            services.look(each, ImportRequest(address=f"{ADDRESS}/tree/b{number}"))

    def advance(import_: Import) -> None:
        both.wait()  # passed only where somebody else's is looked at meanwhile
        seen.append(import_)

    monkeypatch.setattr(progress, "advance", advance)
    assert progress.advance_all() == 4
    assert len(seen) == 4


def test_a_session_ended_by_hand_ends_its_import(look: Import) -> None:
    sessions.terminate(Session.objects.get(pk=look.session_id), actor=look.owner)
    Session.objects.update(ended_at=clock.now() - timedelta(minutes=1))
    progress.advance_all()
    look.refresh_from_db()
    assert look.state == ImportState.FAILED


def test_the_job_has_the_secret_of_its_credential(look: Import) -> None:
    look.credential = credentials.add_token(look.owner, name="a", host="github.com", token="t0ken", username="me")
    job = progress.job_of(look, Session.objects.get(pk=look.session_id))
    assert job["credential"] == {"host": "github.com", "username": "me", "known_hosts": "", "token": "t0ken"}
    assert (job["is_look"], job["url"], job["stale"]) == (True, ADDRESS, [])
    look.credential.encrypted_secret = b"of another key"
    look.credential.save()
    with pytest.raises(credentials.UnreadableCredentialError, match="Delete it"):
        progress.job_of(look, Session.objects.get(pk=look.session_id))


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ({"found": {"files": "x", "bytes": -5, "branch": 7, "evil": 1}}, {"files": None, "bytes": 0, "branch": ""}),
        ({"found": {"notebooks": ["a\n\u202eb", 1, "c" * 9999] + ["d"] * 999}}, None),
        ({"found": {"devcontainer": {"cpus": 2**99, "gpu": True, "x": [1]}}}, None),
    ],
)
def test_what_was_found_is_bounded(line: dict[str, Any], found: dict[str, Any] | None) -> None:
    message = last_message(json.dumps(line))
    assert message.is_last
    assert found is None or message.found == found
    assert len(json.dumps(message.found)) < 40_000
    assert "\u202e" not in str(message.found)
    if "devcontainer" in message.found:
        assert message.found["devcontainer"] == {"cpus": 2**60, "gpu": True}


@pytest.mark.parametrize(
    "text", ["", "x", "{", '{"found": 1}', '{"progress": 1, "bytes": 2}', "[" * 100_000, "{" * 9999]
)
def test_lines_that_are_no_message_are_passed_over(text: str) -> None:
    assert not last_message(text).is_last
