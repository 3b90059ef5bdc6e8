"""Imports as a person runs them on the command line, against a live server; nobody fetches but the test."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from accounts.models import ApiToken, User
from folders.models import StorageRoot
from gpuplatform_client.tests.program import Command, RunningProgram
from imports.models import Import, ImportCredential, ImportState, ImportTarget
from pages.tests.import_rows import ADDRESS, FOUND
from resources import clock
from sessions.models import Session
from tests.factories import make_folder, make_group, make_host, make_image, make_root, make_user
from tests.live import LiveServer
from tests.wait import until

pytestmark = [pytest.mark.loopback, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def user(transactional_db: None) -> User:
    host = make_host(group=make_group(name="lab"), gpus=1)
    make_root(host)
    make_image(reference="gpuplatform/python:3.11", environment="Python", version="3.11")
    return make_user(email="user@example.org")


@pytest.fixture
def program(server: LiveServer, user: User, tmp_path: Path) -> Any:
    token = ApiToken.objects.issue(user)[1]
    return lambda *arguments: RunningProgram(server.url, token, tmp_path, *arguments)


def step(**fields: Any) -> None:
    """Take the import that is under way a step further, once there is one."""
    is_over = fields["state"] in (ImportState.DONE, ImportState.FAILED)
    ended_at = clock.now() if is_over else None
    assert until(lambda: Import.objects.filter(ended_at=None).update(**fields, ended_at=ended_at))


def test_an_import_says_how_far_it_is(program: Any) -> None:
    with program("import", ADDRESS, "--folder", "course", "--ref", "main") as run:
        step(state=ImportState.FETCHING, progress="Receiving objects: 42 %")
        assert until(lambda: "Receiving objects: 42 %\n" in run.messages)
        step(state=ImportState.DONE, found=FOUND)
        assert run.wait() == 0, run.messages
    made = Import.objects.get()
    assert made.folder
    assert (made.folder.name, made.ref, made.target) == ("course", "main", ImportTarget.FOLDER)
    assert "Branch:      main 0123456789ab\n" in run.lines
    assert "Needs:       requirements.txt\n" in run.lines
    assert not Session.objects.filter(kind="interactive").exists()


def test_a_folder_that_is_there_is_taken(program: Any, user: User) -> None:
    folder = make_folder(user, root=StorageRoot.objects.get(), name="data")
    with program("import", ADDRESS, "--folder", "data", "-o", "json") as run:
        step(state=ImportState.DONE, found=FOUND)
        assert run.wait() == 0, run.messages
    assert Import.objects.get().folder == folder
    assert json.loads(run.lines[0])["found"]["branch"] == "main"


def test_an_interrupt_cancels_the_import(program: Any) -> None:
    with program("import", ADDRESS, "--look") as run:
        assert until(lambda: "Waits for its session\n" in run.messages)
        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 130
    assert Import.objects.get().state == ImportState.CANCELLED


def test_a_failed_import_says_why(program: Any) -> None:
    with program("import", ADDRESS, "--look") as run:
        step(state=ImportState.FAILED, problem="It asks for a log-in.")
        assert run.wait() == 1, run.messages
    assert "It asks for a log-in.\n" in run.messages


def test_a_look_is_launched_with_what_fits(program: Any) -> None:
    with program("import", ADDRESS, "--launch", "--fgpu", "0.5") as run:
        step(state=ImportState.DONE, found=FOUND)
        assert run.wait() == 0, run.messages
    launched = Import.objects.get(target=ImportTarget.SESSION).session
    assert launched
    assert (launched.cpu, launched.memory, launched.fgpu) == (2, 2**31, 500)
    assert run.lines[-1] == f"{launched.name} ({launched.pk})\n"


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--look", "--folder", "course"),
        ("--look", "--launch"),
        ("--folder", "course", "--image", "python"),
        ("--launch", "--fgpu", "much"),
    ],
)
def test_contradicting_options_fetch_nothing(signed_in: Command, arguments: tuple[str, ...]) -> None:
    assert signed_in("import", ADDRESS, *arguments).exit_code == 2
    assert not Import.objects.exists()


def test_what_is_refused_names_its_field(signed_in: Command) -> None:
    refused = signed_in("import", "file:///etc/passwd", "--look")
    assert refused.exit_code == 5
    assert "address" in refused.stderr
    assert "no credential 'lab'" in signed_in("import", ADDRESS, "--look", "--credential", "lab").stderr


def test_credentials_are_added_listed_and_removed(signed_in: Command) -> None:
    made = signed_in("credentials", "add", "course", "github.com", "--deploy-key")
    assert made.stdout == f"{ImportCredential.objects.get().public_key}\n"
    listed = signed_in("credentials", "ls")
    assert [word in listed.stdout for word in ("course", "github.com", "ssh_key")] == [True] * 3
    assert signed_in("credentials", "rm", "course").exit_code == 0
    assert not ImportCredential.objects.exists()


def test_a_token_is_read_from_a_file(signed_in: Command, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    made = signed_in("credentials", "add", "lab", "github.com", "--token-file", str(tmp_path / "token"))
    assert (made.exit_code, made.stdout) == (0, "lab\n")
    assert ImportCredential.objects.get().kind == "token"


@pytest.mark.parametrize("option", ["--token-file", "--key-file"])
def test_an_empty_file_makes_no_credential(signed_in: Command, tmp_path: Path, option: str) -> None:
    (tmp_path / "empty").write_text(" \n")
    made = signed_in("credentials", "add", "lab", "github.com", option, str(tmp_path / "empty"))
    assert made.exit_code == 2
    assert option in made.stderr
    assert not ImportCredential.objects.exists()
