"""The terminal page: access, and its content while the session does not run."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from accounts.models import User
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from tests.factories import make_session, make_user, run_session

pytestmark = pytest.mark.django_db
HTMX: Any = {"HTTP_HX_REQUEST": "true"}


def browser_of(user: User) -> Client:
    """Return a browser in which `user` is signed in."""
    browser = Client()
    browser.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return browser


def address(session: Session) -> str:
    """Return the address of the session's terminal."""
    return reverse("sessions:terminal", args=[session.pk])


def test_a_running_session_shows_its_terminal() -> None:
    session = run_session()
    page = browser_of(session.owner).get(address(session))
    assert f"/ws/sessions/{session.pk}/terminal/" in page.content.decode()


def test_other_users_get_404_and_anonymous_the_login() -> None:
    session = run_session()
    assert browser_of(make_user()).get(address(session)).status_code == 404
    answer = Client().get(address(session))
    assert answer.status_code == 302
    assert answer["Location"].startswith(reverse("account_login"))


def test_a_superadmin_sees_any_terminal() -> None:
    assert browser_of(make_user(is_superuser=True)).get(address(run_session())).status_code == 200


def test_a_waiting_sessions_page_reloads_once_it_runs() -> None:
    session = make_session(detail="Waiting for a GPU")
    browser = browser_of(session.owner)
    page = browser.get(address(session)).content.decode()
    assert "is not running yet" in page
    assert "Waiting for a GPU" in page
    assert "HX-Refresh" not in browser.get(address(session), **HTMX).headers
    run_session(session)
    assert browser.get(address(session), **HTMX)["HX-Refresh"] == "true"


def test_an_ended_session_promises_no_terminal() -> None:
    session = make_session()
    session.move_to(Status.CANCELLED, Reason.USER_REQUEST)
    page = browser_of(session.owner).get(address(session)).content.decode()
    assert "is not running</h1>" in page
    assert "opens by itself" not in page
