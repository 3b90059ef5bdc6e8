"""What responses tell browsers: cookies, headers, and what they may store."""

import re
import runpy
from http.cookies import Morsel
from typing import Final

import pytest
from django.conf import settings as django_settings
from django.test import Client
from pytest_django import Settings

from endpoints.handoff.views import share_cookie
from tests.factories import PASSWORD, make_user
from tests.web import browser_of, text_of

pytestmark = pytest.mark.django_db

PAGES: Final = ("/", "/sessions/", "/folders/", "/accounts/", "/accounts/second-factor/", "/help/", "/admin/")
PUBLIC: Final = ("/accounts/sign-in/", "/accounts/password/reset/", "/nothing/", "/api/v1/me/", "/api/v1/nothing/")
COOKIES: Final = ("SESSION_COOKIE", "CSRF_COOKIE", "LANGUAGE_COOKIE")


@pytest.fixture
def https(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings as they are with COMPUTE_HTTPS."""
    monkeypatch.setenv("COMPUTE_HTTPS", "true")
    monkeypatch.setenv("COMPUTE_PUBLIC_URL", "https://gpu.example.org")
    read = runpy.run_path(str(django_settings.BASE_DIR / "gpuplatform" / "settings.py"))
    for name in ("COMPUTE_HTTPS", *(f"{cookie}_{part}" for cookie in COOKIES for part in ("NAME", "SECURE"))):
        setattr(settings, name, read[name])


def test_cookies_have_prefix_and_attributes(https: None) -> None:
    client, user = Client(), make_user()
    client.get("/accounts/sign-in/", secure=True)
    client.post("/accounts/sign-in/", {"login": user.email, "password": PASSWORD}, secure=True)
    client.post("/accounts/language/", {"language": "ko"}, secure=True)
    assert {"__Host-gp_session", "__Host-gp_csrf", "__Host-gp_language"} <= client.cookies.keys()
    assert share_cookie().startswith("__Host-")
    for name, cookie in client.cookies.items():
        assert isinstance(cookie, Morsel)
        found = (name[:7], bool(cookie["secure"]), bool(cookie["httponly"]), cookie["samesite"], cookie["path"])
        assert (*found, cookie["domain"]) == ("__Host-", True, True, "Lax", "/", "")


@pytest.mark.parametrize("hours", [("8", "336"), ("336", "8")])
def test_a_new_login_ends_by_the_nearer_limit(hours: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in zip(("COMPUTE_LOGIN_HOURS", "COMPUTE_LOGIN_IDLE_HOURS"), hours, strict=True):
        monkeypatch.setenv(name, value)
    read = runpy.run_path(str(django_settings.BASE_DIR / "gpuplatform" / "settings.py"))
    assert read["SESSION_COOKIE_AGE"] == 8 * 3600


@pytest.mark.parametrize("path", [*PAGES, *PUBLIC])
def test_responses_are_not_sniffed_or_framed(path: str) -> None:
    response = browser_of(make_user(is_superuser=True, is_staff=True)).get(path)
    assert response.status_code in (200, 302, 404)
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response["X-Frame-Options"] == "DENY"
    assert response["Referrer-Policy"] == response["Cross-Origin-Opener-Policy"] == "same-origin"
    if response.content:
        assert re.fullmatch(r"text/html; charset=utf-8|application/(problem\+)?json", response["Content-Type"])


@pytest.mark.parametrize("path", PAGES)
def test_pages_of_accounts_are_not_stored(path: str) -> None:
    response = browser_of(make_user(is_superuser=True, is_staff=True)).get(path)
    assert response.status_code == 200
    assert "no-store" in response["Cache-Control"]


@pytest.mark.parametrize("path", PAGES)
def test_every_page_has_a_way_to_sign_out(path: str) -> None:
    assert "/accounts/sign-out/" in text_of(browser_of(make_user(is_superuser=True, is_staff=True)), path)


@pytest.mark.parametrize("path", ["/accounts/sign-in/", "/accounts/password/"])
def test_password_fields_are_masked_and_filled_by_managers(path: str) -> None:
    client = Client() if "sign-in" in path else browser_of(make_user())
    fields = re.findall(r'<input[^>]*name="\w*password\w*"[^>]*>', text_of(client, path))
    assert fields
    for field in fields:
        assert 'type="password"' in field
        assert re.search(r'autocomplete="(current|new)-password"', field)
