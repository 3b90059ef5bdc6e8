"""Signing in with a real browser: a forgotten password, an authenticator app, a passkey."""

import re
import time
from collections.abc import Iterator

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.core.cache import cache
from playwright.sync_api import Browser, Page, Route, expect

from accounts.models import User
from tests.browser import watched_context
from tests.factories import PASSWORD, make_user
from tests.live import LiveServer
from tests.wait import until

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

NEW_PASSWORD = "quite another password"
LINK = re.compile(r"http://127\.0\.0\.1:\d+(/accounts/password/reset/key/[0-9A-Za-z-]+/)")


@pytest.fixture
def user() -> User:
    """A user whose password is hashed as the server does, which does not know the quick hashes of tests."""
    cache.clear()
    user = make_user(email="ada@example.org")
    User.objects.update(password=PBKDF2PasswordHasher().encode(PASSWORD, "salt" * 8, iterations=10))
    return user


@pytest.fixture
def page(browser: Browser, server: LiveServer) -> Iterator[Page]:
    """A page of the platform as localhost, where browsers have passkeys without HTTPS; it has an authenticator."""
    with watched_context(browser, server.url.replace("127.0.0.1", "localhost")) as context:
        opened = context.new_page()
        devtools = context.new_cdp_session(opened)
        devtools.send("WebAuthn.enable")
        options = {"protocol": "ctap2", "transport": "internal", "automaticPresenceSimulation": True}
        able = dict.fromkeys(("hasResidentKey", "hasUserVerification", "isUserVerified"), True)
        devtools.send("WebAuthn.addVirtualAuthenticator", {"options": options | able})
        yield opened


def send_password(page: Page, user: User, password: str = PASSWORD) -> None:
    page.goto("/accounts/sign-in/")
    page.get_by_label("E-mail address").fill(user.email)
    page.get_by_label("Password", exact=True).fill(password)
    page.get_by_role("button", name="Sign in", exact=True).click()


def sign_out(page: Page) -> None:
    """Forget the login session, and open the page of signing in."""
    page.goto("about:blank")  # where no script opens the former page again
    page.context.clear_cookies()
    page.goto("/accounts/sign-in/")


def expect_signed_in(page: Page) -> None:
    expect(page.get_by_role("heading", name="Summary", exact=True)).to_be_visible()


def code_of(secret: str, steps: int = 0) -> str:
    return str(format_hotp_value(hotp_value(secret, int(time.time()) // 30 + steps)))


def test_a_forgotten_password_is_replaced(page: Page, user: User, server: LiveServer) -> None:
    page.goto("/accounts/sign-in/")
    page.get_by_role("link", name="Forgotten password?").click()
    page.get_by_label("E-mail address").fill(user.email)
    page.get_by_role("button", name="Send the link").click()
    expect(page.get_by_role("heading", name="Look into your mail")).to_be_visible()
    until(lambda: LINK.search(server.log.read_text()))
    page.goto(LINK.findall(server.log.read_text())[-1])
    page.get_by_label("New password", exact=True).fill(NEW_PASSWORD)
    page.get_by_label("New password, once more").fill(NEW_PASSWORD)
    page.get_by_role("button", name="Save the new password").click()
    page.get_by_role("link", name="Sign in").click()
    send_password(page, user, NEW_PASSWORD)
    expect_signed_in(page)


@pytest.mark.long
def test_an_app_and_a_passkey_sign_in(page: Page, user: User) -> None:
    send_password(page, user)
    expect_signed_in(page)
    page.goto("/accounts/second-factor/")
    page.get_by_role("link", name="Set up").click()
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Confirm").click()
    expect(page.get_by_role("img", name="QR code with the secret")).to_be_visible()
    secret = page.locator("#secret").inner_text()
    page.get_by_label("Code that the app shows").fill(code_of(secret))
    page.get_by_role("button", name="Activate").click()
    expect(page.locator("#codes")).to_be_visible()
    sign_out(page)
    send_password(page, user)
    page.get_by_label("Code").fill(code_of(secret))
    page.get_by_role("button", name="Sign in").click()
    expect_signed_in(page)

    page.goto("/accounts/second-factor/passkeys/add/")
    page.get_by_label("Password").fill(PASSWORD)
    held: list[Route] = []
    page.route("**/passkeys.*js", lambda route: held.append(route), times=1)
    with page.expect_request("**/passkeys.*js"):
        page.get_by_role("button", name="Confirm").click()
    page.get_by_label("Name").fill("laptop")
    expect(page.get_by_role("button", name="Add")).to_be_disabled()  # until its script has come
    held.pop().continue_()
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_role("main")).to_contain_text("signs in alone")
    assert Authenticator.objects.filter(type="webauthn").count() == 1
    sign_out(page)
    page.get_by_role("button", name="Sign in with a passkey").click()
    expect_signed_in(page)
    sign_out(page)
    send_password(page, user)
    page.get_by_role("button", name="Use a passkey").click()
    expect_signed_in(page)
