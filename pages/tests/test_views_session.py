"""The page of one session, its logs, and ending it."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from django.test import override_settings
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from engine.containers import container_name
from pages.log_panel.panel import SHOWN_CHARACTERS
from resources.amounts.units import MIB
from sessions import notes
from sessions.following import logs
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from sessions.words import REASON_WORDS, reason_text
from tests.containers import running_container
from tests.factories import make_host, make_session, make_user, run_session, session_in
from tests.tiny_image import ensure_tiny_image
from tests.web import HTMX, browser_of, text_of

pytestmark = pytest.mark.django_db


def ended_with(tail: str) -> Session:
    session = run_session()
    session.move_to(Status.ERROR, Reason.CONTAINER_EXITED, fields={"log_tail": tail, "exit_code": 3})
    return session


def test_the_page_tells_the_story_of_the_session() -> None:
    host = make_host(gpus=1)
    session = run_session(host=host, fgpu=500, environment={"EPOCHS": "12"})
    session.move_to(Status.TERMINATING, Reason.USER_REQUEST, "Ended by its owner.", actor=session.owner)
    page = text_of(browser_of(session.owner), f"/sessions/{session.pk}/")
    for words in ("Placed on a host", "Ended by its owner.", f"by {session.owner.email}", "EPOCHS"):
        assert words in page
    assert host.gpus.get().uuid in page
    assert "simulated" in page


def test_the_page_shows_ssh_command_and_last_use() -> None:
    session = run_session()
    shown = text_of(browser_of(session.owner), f"/sessions/{session.pk}/")
    assert f"ssh -p 8022 {session.pk}@127.0.0.1" in shown
    assert "not yet" in shown
    assert "id_container" not in shown
    used_at = timezone.now() - timedelta(minutes=3)
    Session.objects.filter(pk=session.pk).update(last_activity_at=used_at, ssh_public_key="ssh-ed25519 AAAA")
    shown = text_of(browser_of(session.owner), f"/sessions/{session.pk}/")
    assert "id_container" in shown
    assert "3\xa0minutes ago</time>" in shown


@override_settings(COMPUTE_SSH_ADDRESS="")
def test_without_a_front_no_page_speaks_of_ssh() -> None:
    session = run_session()
    assert "ssh-command" not in text_of(browser_of(session.owner), f"/sessions/{session.pk}/")


@pytest.mark.parametrize(
    ("fgpu", "words"),
    [
        (500, "How it is divided: memory and GPU time limited by the platform, watched by the host"),
        (500, "Idle GPU time: never more GPU time than the share"),
        (2000, "How it is divided: the whole device, shared with nobody"),
    ],
)
def test_the_page_shows_how_shares_are_enforced(fgpu: int, words: str) -> None:
    session = run_session(fgpu=fgpu)
    page = text_of(browser_of(session.owner), f"/sessions/{session.pk}/")
    assert words in page


def test_an_exit_code_is_shown() -> None:
    session = ended_with("")
    assert "exit code <strong>3</strong>" in text_of(browser_of(session.owner), f"/sessions/{session.pk}/")


def test_what_a_user_typed_is_never_markup() -> None:
    session = ended_with("<script>alert(1)</script>")
    session.environment = {"X": "<img src=x>"}
    session.save(update_fields=["environment"])
    page = text_of(browser_of(session.owner), f"/sessions/{session.pk}/")
    assert "<script>alert" not in page
    assert "<img src=x>" not in page


def test_a_session_that_starts_shows_its_steps_and_the_pull() -> None:
    session = session_in(Status.PREPARING)
    Session.objects.filter(pk=session.pk).update(pulled_bytes=120 * MIB, pull_bytes=345 * MIB)
    page = text_of(browser_of(session.owner), f"/sessions/{session.pk}/")
    assert "120 MiB of 345 MiB" in page
    assert f'max="{345 * MIB}" value="{120 * MIB}"' in page
    assert 'id="usage"' not in page


def test_the_page_offers_ssh_for_editors_and_another_launch() -> None:
    session = run_session(name="my-work")
    page = text_of(browser_of(session.owner), f"/sessions/{session.pk}/")
    assert f"Host my-work\n    HostName 127.0.0.1\n    Port 8022\n    User {session.pk}\n" in page
    assert f"/sessions/launch/?again={session.pk}" in page


def test_the_page_takes_the_same_queries_for_any_story(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    short, long = run_session(fgpu=500), run_session(fgpu=500)
    for number in range(20):
        notes.note(long, Reason.ENTERED, f"Somebody opened {number}.", actor=long.owner)
    for session in (short, long):
        browser = browser_of(session.owner)
        with django_assert_num_queries(12):
            text_of(browser, f"/sessions/{session.pk}/", **HTMX)


def test_unchanged_logs_are_not_sent_again() -> None:
    session = ended_with("done")
    browser = browser_of(session.owner)
    text = text_of(browser, f"/sessions/{session.pk}/logs/", **HTMX)
    digest = text.partition('data-digest="')[2].partition('"')[0]
    assert browser.get(f"/sessions/{session.pk}/logs/?digest={digest}", headers=HTMX).status_code == 204
    assert browser.get(f"/sessions/{session.pk}/logs/?digest=other", headers=HTMX).status_code == 200


def test_of_endless_lines_the_end_is_shown() -> None:
    session = ended_with("first" + "x" * SHOWN_CHARACTERS + "last")
    text = text_of(browser_of(session.owner), f"/sessions/{session.pk}/logs/", **HTMX)
    assert ("first" in text, "xlast" in text) == (False, True)


def test_the_live_update_is_only_the_details() -> None:
    session = make_session()
    part = text_of(browser_of(session.owner), f"/sessions/{session.pk}/", **HTMX)
    assert session.name in part
    assert "<html" not in part


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_words(reason: Reason) -> None:
    assert reason_text(reason.value, "") == REASON_WORDS[reason]
    assert reason_text(reason.value, "more exactly") == "more exactly"


def test_an_ended_sessions_logs_are_its_last_lines() -> None:
    assert logs.read(ended_with("one\ntwo\nthree\n"), 2) == "two\nthree"


@pytest.mark.docker
def test_a_running_sessions_logs_come_from_its_container() -> None:
    session = run_session(host=make_host(name="test-host"))
    name = container_name(session.pk, session.attempt)
    with running_container(ensure_tiny_image(), name=name) as container:
        container.run("echo said $((6*7)) > /proc/1/fd/1")
        assert logs.read(session, 10) == "said 42\n"
    assert logs.read(session, 10) == ""


def test_logs_of_an_unreachable_engine_are_an_error(tmp_path: Path) -> None:
    session = run_session(host=make_host(name="test-host"))
    nowhere = override_settings(COMPUTE_DOCKER_URL=f"unix://{tmp_path}/none.sock")
    with nowhere, pytest.raises(logs.LogsUnavailableError, match=r"^The container engine cannot be reached\."):
        logs.read(session, 10)


def test_a_waiting_session_has_written_nothing() -> None:
    assert logs.read(make_session(), 10) == ""


def test_logs_are_shown_in_colours_and_downloaded_raw() -> None:
    session = ended_with("\x1b[32mdone\x1b[0m")
    browser = browser_of(session.owner)
    assert '<span class="ansi-2">done</span></pre>' in text_of(browser, f"/sessions/{session.pk}/logs/", **HTMX)
    file = browser.get(f"/sessions/{session.pk}/logs/download/")
    assert file.content == b"\x1b[32mdone\x1b[0m"
    assert file.headers["Content-Disposition"] == f'attachment; filename="{session.name}-{session.pk}.log"'


def test_ending_asks_first_and_warns_that_data_goes() -> None:
    session = run_session()
    page = text_of(browser_of(session.owner), f"/sessions/{session.pk}/terminate/")
    assert "is deleted as soon as the session ends" in page
    session.refresh_from_db()
    assert session.status == Status.RUNNING


def test_a_session_is_ended_by_post() -> None:
    session = run_session()
    response = browser_of(session.owner).post(f"/sessions/{session.pk}/terminate/", follow=True)
    assert f"Ending {session.name}." in response.content.decode()
    session.refresh_from_db()
    assert session.status == Status.TERMINATING


def test_ending_in_the_dialog_can_be_undone() -> None:
    session = make_session()
    browser, address = browser_of(session.owner), f"/sessions/{session.pk}/terminate/"
    assert "You can undo it for 5 seconds" in text_of(browser, address, **HTMX)
    response = browser.post(address, headers=HTMX)
    assert response.status_code == 204
    undo = {"url": "/sessions/undo-ends/", "values": {"ids": [session.pk]}}
    told = {"message": f"{session.name} ends in 5 seconds.", "undo": undo}
    assert json.loads(response.headers["HX-Trigger"]) == {"sessions:ended": told}
    for page in ("/sessions/", f"/sessions/{session.pk}/"):
        assert f'id="undo-{session.pk}"' in text_of(browser, page)
    response = browser.post("/sessions/undo-ends/", undo["values"], headers=HTMX)
    assert json.loads(response.headers["HX-Trigger"]) == {"sessions:ended": {"message": f"{session.name} goes on."}}
    assert "Ends in a few seconds." not in text_of(browser, "/sessions/")
    response = browser.post("/sessions/undo-ends/", undo["values"], headers=HTMX)
    told = {"message": "Nothing to undo: it has ended, or goes on already."}
    assert json.loads(response.headers["HX-Trigger"]) == {"sessions:ended": told}
    session.refresh_from_db()
    assert session.status == Status.PENDING


def test_ending_in_the_dialog_twice_ends_at_once() -> None:
    session = make_session()
    for text in (f"{session.name} ends in 5 seconds.", f"Ending {session.name}."):
        response = browser_of(session.owner).post(f"/sessions/{session.pk}/terminate/", headers=HTMX)
        assert json.loads(response.headers["HX-Trigger"])["sessions:ended"]["message"] == text
    session.refresh_from_db()
    assert session.status == Status.CANCELLED


def test_nobody_else_undoes_an_end() -> None:
    session, admin = make_session(), make_user(is_superuser=True)
    browser_of(admin).post(f"/sessions/{session.pk}/terminate/", headers=HTMX)
    browser = browser_of(session.owner)
    page = text_of(browser, f"/sessions/{session.pk}/") + text_of(browser, "/sessions/")
    assert page.count("Ends in a few seconds.") == 2
    assert "undo-" not in page.replace("undo-end", "")
    browser.post("/sessions/undo-ends/", {"ids": [session.pk, "no id"]}, headers=HTMX)
    assert "Ends in a few seconds." in text_of(browser, "/sessions/")


def test_superadmins_undo_in_their_list_what_anybody_asked_for() -> None:
    session, admin = make_session(), make_user(is_superuser=True)
    for actor in (session.owner, admin):
        browser_of(actor).post(f"/sessions/{session.pk}/terminate/", headers=HTMX)
        assert f'id="undo-{session.pk}"' in text_of(browser_of(admin), "/sessions/")
        assert (f'id="undo-{session.pk}"' in text_of(browser_of(session.owner), "/sessions/")) == (actor != admin)
        browser_of(admin).post("/sessions/undo-ends/", {"ids": [session.pk]}, headers=HTMX)


def test_several_sessions_are_ended_at_once() -> None:
    owner = make_user()
    sessions = [make_session(owner=owner), run_session(owner=owner), make_session(owner=owner)]
    chosen = [session.pk for session in sessions[:2]]
    browser = browser_of(owner)
    asked = browser.get("/sessions/terminate/", {"ids": chosen}).content.decode()
    assert "Terminate 2 sessions?" in asked
    browser.post("/sessions/terminate/", {"ids": chosen})
    states = [Session.objects.get(pk=session.pk).status for session in sessions]
    assert states == [Status.CANCELLED, Status.TERMINATING, Status.PENDING]


def test_ending_what_has_ended_changes_nothing() -> None:
    session = ended_with("")
    response = browser_of(session.owner).post(f"/sessions/{session.pk}/terminate/", follow=True)
    assert "Nothing to end" in response.content.decode()
