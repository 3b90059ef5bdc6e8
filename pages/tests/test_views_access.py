"""Access to pages: for owners and superadmins only."""

import pytest
from django.test import Client

from sessions.lifecycle import Status
from tests.factories import make_session, make_user, run_session
from tests.web import browser_of, text_of

pytestmark = pytest.mark.django_db

OF_ONE_SESSION = ("", "logs/", "logs/download/", "terminate/")


@pytest.mark.parametrize(
    "path",
    [
        "/sessions/",
        "/sessions/launch/",
        "/sessions/launch/review/",
        "/sessions/launch/start-over/",
        "/sessions/terminate/",
    ],
)
@pytest.mark.parametrize("method", ["get", "post"])
def test_nobody_is_sent_to_the_sign_in_page(client: Client, path: str, method: str) -> None:
    response = getattr(client, method)(path)
    if response.status_code != 405:
        assert response.headers["Location"] == f"/accounts/sign-in/?next={path}"


@pytest.mark.parametrize("part", OF_ONE_SESSION)
def test_anonymous_users_are_redirected_to_the_login(client: Client, part: str) -> None:
    path = f"/sessions/{make_session().pk}/{part}"
    assert client.get(path).headers["Location"] == f"/accounts/sign-in/?next={path}"


@pytest.mark.parametrize("part", OF_ONE_SESSION)
def test_a_strangers_session_does_not_exist(part: str) -> None:
    session = run_session()
    stranger = browser_of(make_user())
    assert stranger.get(f"/sessions/{session.pk}/{part}").status_code == 404
    assert stranger.get(f"/sessions/unknown/{part}").status_code == 404


@pytest.mark.parametrize("part", [*OF_ONE_SESSION, "terminal/"])
@pytest.mark.parametrize("odd", ["a%00b", "%2e%2e", "x" * 3000, "%F0%9F%98%80"])
def test_what_is_no_session_id_is_not_found(odd: str, part: str) -> None:
    assert browser_of(make_user()).get(f"/sessions/{odd}/{part}").status_code == 404


def test_a_nul_character_finds_nothing_and_ends_nothing() -> None:
    session = run_session()
    browser = browser_of(session.owner)
    assert session.name in text_of(browser, f"/sessions/?q=%00{session.name}")
    assert browser.get("/sessions/terminate/?ids=%00&ids=odd").status_code == 200
    assert browser.post("/sessions/terminate/", {"ids": ["a\0", session.pk]}).status_code == 302
    session.refresh_from_db()
    assert session.status == Status.TERMINATING


@pytest.mark.parametrize("part", OF_ONE_SESSION)
def test_owner_and_superadmin_see_the_session(part: str) -> None:
    session = make_session()
    for user in (session.owner, make_user(is_superuser=True)):
        assert browser_of(user).get(f"/sessions/{session.pk}/{part}").status_code == 200


def test_a_stranger_ends_nothing() -> None:
    session = run_session()
    stranger = browser_of(make_user())
    assert stranger.post(f"/sessions/{session.pk}/terminate/").status_code == 404
    stranger.post("/sessions/terminate/", {"ids": [session.pk]})
    session.refresh_from_db()
    assert session.status == Status.RUNNING


def test_pages_are_kept_by_no_cache() -> None:
    page = browser_of(make_user()).get("/sessions/")
    assert "no-store" in page.headers["Cache-Control"]
    assert "HX-Request" in page.headers["Vary"]


def test_missing_pages_show_the_sites_404() -> None:
    page = browser_of(make_user()).get("/nowhere/")
    assert page.status_code == 404
    assert "This page does not exist, or you may not see it." in page.content.decode()
