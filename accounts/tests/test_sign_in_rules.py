"""Sign-in: passwords as they are, new session keys, random secrets, and what is logged."""

import logging

import pytest
from django.conf import settings
from django.core.mail import EmailMessage
from django.core.mail.message import BadHeaderError
from django.test import Client

from accounts.credentials import tokens
from accounts.models import TokenScope
from tests.factories import PASSWORD, make_user
from tests.web import browser_of

pytestmark = pytest.mark.django_db

SPACED = "  with spaces around it "


def sign_in(client: Client, email: str, password: str) -> int:
    return client.post("/accounts/sign-in/", {"login": email, "password": password}).status_code


def test_a_password_is_taken_with_its_spaces() -> None:
    user = make_user()
    fields = {"oldpassword": PASSWORD, "password1": SPACED, "password2": SPACED}
    assert browser_of(user).post("/accounts/password/", fields).status_code == 302
    assert sign_in(Client(), user.email, SPACED.strip()) == 200
    assert sign_in(Client(), user.email, SPACED.upper()) == 200
    assert sign_in(Client(), user.email, SPACED) == 302


def test_signing_in_gives_another_session_key() -> None:
    client, first, second = Client(), make_user(), make_user()
    keys = []
    for user in (first, second):
        client.post("/accounts/sign-out/")
        sign_in(client, user.email, PASSWORD)
        keys.append(client.cookies[settings.SESSION_COOKIE_NAME].value)
    assert keys[0] != keys[1]
    planted = Client()
    planted.cookies[settings.SESSION_COOKIE_NAME] = "planted" * 4
    sign_in(planted, first.email, PASSWORD)
    assert planted.cookies[settings.SESSION_COOKIE_NAME].value not in ("planted" * 4, *keys)


def test_secrets_have_enough_random_bits() -> None:
    user = make_user()
    client = Client()
    sign_in(client, user.email, PASSWORD)
    made = {tokens.create_token(user, str(at), scope=TokenScope.READ, lifetime=tokens.MAX_LIFETIME)[1] for at in (1, 2)}
    assert [len(text) for text in made] == [64, 64]  # hexadecimal digits
    assert len(client.cookies[settings.SESSION_COOKIE_NAME].value) == 32  # of 36 characters


def test_sign_ins_and_refusals_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    user = make_user()
    client = Client(REMOTE_ADDR="192.0.2.7")
    with caplog.at_level(logging.INFO):
        sign_in(client, user.email, "wrong")
        sign_in(client, user.email, PASSWORD)
        client.post("/api/v1/admin/users/", {}, content_type="application/json")
        Client().get("/api/v1/me/")
    text = caplog.text
    assert f"user {user.pk}: signed in from 192.0.2.7 by password" in text
    assert "New login failure" in text
    assert "POST /api/v1/admin/users/: 403" in text
    assert "GET /api/v1/me/: 401" in text
    assert PASSWORD not in text


def test_mails_have_no_header_of_a_users() -> None:
    with pytest.raises(BadHeaderError):
        EmailMessage("a title\nBcc: else@example.org", to=["a@example.org"]).message()
