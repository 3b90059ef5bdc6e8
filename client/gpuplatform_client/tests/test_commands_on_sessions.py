"""Commands that change and show what there is, against a live server: hosts are rows, sessions are moved by hand."""

import json
from datetime import timedelta
from pathlib import Path
from threading import Thread

import pytest
from django.db import connections
from django.utils import timezone

from accounts.models import ApiToken, User
from deployments.tests.making import make_deployment
from gpuplatform_client.tests.program import Command, RunningProgram
from resources.amounts.units import GIB
from sessions.lifecycle import Reason, Status
from sessions.models import Conversion, ConversionState, Endpoint, Session
from tests.factories import make_endpoint, make_host, make_image, make_policy, make_session, make_user, run_session
from tests.live import LiveServer
from tests.wait import until

HOUR = timedelta(hours=1)
pytestmark = [pytest.mark.loopback, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def user(transactional_db: None) -> User:
    policy = make_policy(max_lifetime=8 * HOUR, max_extension=2 * HOUR, memory=8 * GIB, allow_conversion=True)
    return make_user(email="user@example.org", policy=policy)


def test_sessions_are_parked_resumed_extended_and_renamed(signed_in: Command, user: User) -> None:
    session = run_session(owner=user, name="train")
    extended = signed_in("extend", "train", "1h")
    assert extended.stdout.startswith(f"train ({session.pk}): ends at ")
    assert Session.objects.get().extension == HOUR
    too_long = signed_in("extend", "train", "9h")
    assert (too_long.exit_code, "by: " in too_long.stderr) == (5, True)
    assert signed_in("rename", "train", "eval").stdout == f"eval ({session.pk})\n"
    assert signed_in("snooze", "eval", "30m").exit_code == 5  # it is not idle
    assert signed_in("park", "eval", "nobody").exit_code == 4
    assert Session.objects.get().status == Status.RUNNING  # none, as one does not exist
    assert signed_in("park", "eval").stdout == f"eval ({session.pk}): TERMINATING\n"
    Session.objects.get().move_to(Status.PARKED, Reason.PARKED)
    assert signed_in("resume", "eval").stdout == f"eval ({session.pk}): PENDING\n"
    reasons = signed_in("events", "eval", "-o", "name").stdout.split()
    assert reasons[-2:] == ["PARKED", "RESUMED"]


def test_a_batch_session_is_requeued(signed_in: Command, user: User) -> None:
    run_session(make_session(owner=user, name="train", kind="batch", command="true"))
    assert signed_in("requeue", "train").stdout.endswith(": TERMINATING\n")
    assert signed_in("requeue", "train").exit_code == 5


def test_what_was_waited_for_is_the_exit_code(signed_in: Command, user: User) -> None:
    good, bad = (make_session(owner=user, name=name, kind="batch", command="true") for name in ("good", "bad"))
    assert signed_in("wait", "good", "--for", "nothing").exit_code == 2

    def move(*steps: tuple[Session, int]) -> Thread:
        def go() -> None:
            for session, code in steps:
                run_session(session).move_to(
                    Status.TERMINATED if code == 0 else Status.ERROR,
                    Reason.CONTAINER_EXITED,
                    fields={"exit_code": code, "ended_at": timezone.now()},
                )
            connections.close_all()

        thread = Thread(target=go)
        thread.start()
        return thread

    moving = move((good, 0), (bad, 3))
    both = signed_in("wait", "good", "bad")
    moving.join()
    assert (both.exit_code, both.stdout.split()[2::3]) == (1, ["TERMINATED", "ERROR"])
    assert signed_in("wait", "good").exit_code == 0
    assert signed_in("wait", "good", "--for", "running").exit_code == 1
    run_session(make_session(owner=user, name="shell"))
    assert signed_in("wait", "shell", "--for", "running").exit_code == 0
    late = signed_in("wait", "shell", "--for", "ended", "--timeout", "1s")
    assert (late.exit_code, late.stdout, "within 1s" in late.stderr) == (124, "", True)
    assert signed_in("wait", "shell", "--timeout", "soon").exit_code == 2
    assert signed_in("wait", "nobody").exit_code == 4


def test_a_deployment_is_waited_for_until_it_is_healthy(signed_in: Command, user: User) -> None:
    make_deployment(user, name="idle", replicas=0)
    assert signed_in("wait", "idle", "--for", "healthy").stdout.endswith(": 0 of 0 replicas ready\n")
    make_deployment(user, name="chat")
    assert signed_in("wait", "idle", "chat", "--for", "healthy", "--timeout", "1s").exit_code == 124


def test_events_are_followed_until_the_session_ends(signed_in: Command, user: User) -> None:
    session = run_session(owner=user, name="train")
    session.move_to(Status.TERMINATED, Reason.CONTAINER_EXITED, fields={"exit_code": 0, "ended_at": timezone.now()})
    followed = signed_in("events", "train", "-f", "-o", "name")
    assert (followed.exit_code, followed.stdout) == (0, signed_in("events", "train", "-q").stdout)
    rows = signed_in("events", "train", "-f").stdout.splitlines()
    assert [rows[0].split()[0], len(rows)] == ["TIME", 1 + len(followed.stdout.split())]


def test_sessions_are_listed_again_as_they_change(user: User, server: LiveServer, tmp_path: Path) -> None:
    session = make_session(owner=user, name="train")
    token = ApiToken.objects.issue(user)[1]
    with RunningProgram(server.url, token, tmp_path, "ls", "--watch", "-o", "json") as program:
        until(lambda: program.lines)  # from then on nothing is missed
        run_session(session)
        until(lambda: '"status":"RUNNING"' in program.lines[-1])


def test_a_session_becomes_an_image_that_is_waited_for(signed_in: Command, user: User) -> None:
    run_session(owner=user, name="train")

    def host_saves(**end: str) -> Thread:
        def go() -> None:
            until(lambda: Conversion.objects.filter(state=ConversionState.QUEUED).exists())
            Conversion.objects.filter(state=ConversionState.QUEUED).update(**end, ended_at=timezone.now())
            connections.close_all()

        thread = Thread(target=go)
        thread.start()
        return thread

    for end, code, said in (
        ({"state": "FAILED", "problem": "The disk is full."}, 1, "The disk is full."),
        ({"state": "DONE"}, 0, ""),
    ):
        host = host_saves(**end)
        done = signed_in("convert", "train", "mine:2")
        host.join()
        assert (done.exit_code, said in done.stderr) == (code, True)
    assert done.stdout.strip() == Conversion.objects.latest("created_at").reference
    assert "name: " in signed_in("convert", "train", "Not/Allowed").stderr


def test_lists_are_tables_objects_or_names(signed_in: Command, user: User) -> None:
    host = make_host(name="alpha", gpus=2, cpu=8)
    image = make_image(reference="team/torch:2.13", environment="PyTorch", version="2.13")
    session = run_session(owner=user, name="train", host=host, image=image, cpu=2, fgpu=500)
    make_session(owner=make_user(), name="foreign")
    assert signed_in("ls", "-o", "name").stdout == f"{session.pk}\n"
    assert "HOST" not in signed_in("ls").stdout
    wide = signed_in("ls", "-o", "wide", COLUMNS="250").stdout
    assert ["HOST" in wide, "alpha" in wide] == [True, True]
    assert signed_in("images", "-o", "name").stdout.split()[0] == "team/torch:2.13"
    assert json.loads(signed_in("hosts", "-o", "json").stdout)["gpus"][0]["held"] == "0.5"
    assert signed_in("hosts").stdout.splitlines()[1].split()[:4] == ["alpha", "READY", host.group.name, "2/8"]
    assert signed_in("ls", "-o", "xml").exit_code == 2
    left = {line.split()[0]: line.split()[1:] for line in signed_in("limits").stdout.splitlines()[1:]}
    assert left["Memory"] == ["8", "GiB", "1", "GiB", "7", "GiB"]
    assert left["CPU"][1] == "2"
    assert signed_in("limits", "--project", "nothing").exit_code == 5
    usage = signed_in("usage", "--by", "group").stdout.splitlines()
    assert usage[-1].split()[:2] == ["all", "1"]
    assert json.loads(signed_in("usage", "--json").stdout)["sessions"] == 1
    assert signed_in("usage", "--by", "colour").exit_code == 5


def test_apps_are_listed_and_opened_by_name_or_port(signed_in: Command, user: User) -> None:
    endpoint = make_endpoint(run_session(owner=user, name="train"))
    assert signed_in("apps", "train", "-o", "name").stdout.split() == [endpoint.app]
    opened = signed_in("open", "train", "9000", "--no-browser")
    assert opened.stdout.strip().startswith("http")
    assert Endpoint.objects.filter(session__name="train", app="p9000").exists()
    assert "There is no session" in signed_in("open", "nobody", "jupyter").stderr
    waiting = make_session(owner=user, name="queued")
    refused = signed_in("open", waiting.pk, "8080")
    assert (refused.exit_code, "it can be entered while it is RUNNING" in refused.stderr) == (1, True)
