"""Signing in and out."""

import pytest
from django.conf import settings
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.http import HttpRequest
from django.test import Client, override_settings
from django.urls import reverse

from accounts.models import User
from accounts.signing_in import lockout
from accounts.signing_in.lockout import ADDRESS_FAILURE_LIMIT, folded_username
from gpuplatform import settings as default_settings
from tests.factories import PASSWORD, make_user

pytestmark = pytest.mark.django_db

SIGN_IN = "/accounts/sign-in/"


def attempt(client: Client, email: str, password: str = PASSWORD, next_page: str = "") -> int:
    return client.post(SIGN_IN, {"login": email, "password": password, "next": next_page}).status_code


def is_signed_in(client: Client) -> bool:
    return "_auth_user_id" in client.session


@override_settings(PASSWORD_HASHERS=default_settings.PASSWORD_HASHERS)
def test_sign_in_renews_a_hash_of_before(client: Client) -> None:
    user = make_user(email="ada@example.org")
    User.objects.update(password=PBKDF2PasswordHasher().encode(PASSWORD, "salt" * 8, iterations=10))
    for _ in range(2):
        assert attempt(client, "ada@example.org") == 302
        user.refresh_from_db()
        assert user.password.startswith("argon2$argon2id$v=19$m=19456,t=2,p=1$")


def test_login_redirects_to_the_requested_page(client: Client) -> None:
    make_user(email="ada@example.org")
    response = client.post(
        SIGN_IN, {"login": "ada@example.org", "password": PASSWORD, "next": reverse("sessions:launch")}
    )
    assert response.headers["Location"] == "/sessions/launch/"
    assert is_signed_in(client)


def test_the_case_of_the_address_does_not_matter(client: Client) -> None:
    make_user(email="ada@example.org")
    assert attempt(client, "ADA@Example.ORG") == 302


def test_login_never_redirects_to_another_site(client: Client) -> None:
    make_user(email="ada@example.org")
    response = client.post(SIGN_IN, {"login": "ada@example.org", "password": PASSWORD, "next": "https://evil.example/"})
    assert response.headers["Location"] == "/"


@pytest.mark.parametrize("email", ["ada@example.org", "nobody@example.org"])
def test_wrong_password_and_unknown_address_look_the_same(client: Client, email: str) -> None:
    make_user(email="ada@example.org")
    response = client.post(SIGN_IN, {"login": email, "password": "wrong"})
    assert "This e-mail address and password do not match." in response.content.decode()
    assert email in response.content.decode(), "the address that was typed is kept"
    assert not is_signed_in(client)


def test_a_disabled_person_stays_outside(client: Client) -> None:
    make_user(email="ada@example.org", is_active=False)
    assert attempt(client, "ada@example.org") == 200
    assert not is_signed_in(client)


def test_repeated_failures_lock_out_an_address_in_any_case(client: Client) -> None:
    make_user(email="ada@example.org")
    spellings = ("ada@example.org", "Ada@example.org")
    for number in range(settings.AXES_FAILURE_LIMIT):
        attempt(client, spellings[number % 2], "wrong")
    response = client.post(SIGN_IN, {"login": "ada@example.org", "password": PASSWORD})
    assert response.status_code == 429
    assert "You can try again in <strong>15 minutes</strong>" in response.content.decode()
    assert not is_signed_in(client)


@pytest.mark.parametrize("spelling", ["ADA@EXAMPLE.ORG", " ada@example.org ", "\uff41\uff44\uff41@example.org"])
def test_spellings_of_an_address_are_counted_together(spelling: str) -> None:
    assert folded_username(HttpRequest(), {"username": spelling}) == "ada@example.org"


def test_one_address_cannot_try_many_accounts(client: Client) -> None:
    make_user(email="grace@example.org")
    tried = [attempt(client, f"user{number}@example.org", "wrong") for number in range(ADDRESS_FAILURE_LIMIT)]
    assert tried == [200] * (ADDRESS_FAILURE_LIMIT - 1) + [429]
    assert attempt(client, "grace@example.org") == 429
    response = client.post(
        "/api/v1/auth/token/", {"email": "grace@example.org", "password": PASSWORD}, "application/json"
    )
    assert response.status_code == 429
    assert not is_signed_in(client)


def test_many_addresses_cannot_try_one_account(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lockout, "ACCOUNT_FAILURE_LIMIT", 3)
    make_user(email="ada@example.org")
    data = {"login": "ada@example.org", "password": "wrong"}
    tried = [client.post(SIGN_IN, data, REMOTE_ADDR=f"192.0.2.{number}").status_code for number in range(3)]
    assert tried == [200, 200, 429]
    assert client.post(SIGN_IN, data | {"password": PASSWORD}, REMOTE_ADDR="192.0.2.9").status_code == 429


def test_administration_has_no_door_of_its_own(client: Client) -> None:
    assert client.get("/admin/", follow=True).redirect_chain[-1] == (f"{SIGN_IN}?next=/admin/", 302)
    assert client.post("/admin/login/", {"username": "a@b.org", "password": "x"}).status_code == 405
    client.force_login(make_user(), backend="django.contrib.auth.backends.ModelBackend")
    assert client.get("/admin/", follow=True).status_code == 403


def test_a_locked_address_locks_nobody_else_out(client: Client) -> None:
    make_user(email="grace@example.org")
    for _ in range(settings.AXES_FAILURE_LIMIT):
        attempt(client, "ada@example.org", "wrong")
    assert attempt(client, "grace@example.org") == 302


def test_signing_out_takes_a_post(client: Client) -> None:
    client.force_login(make_user(), backend="django.contrib.auth.backends.ModelBackend")
    assert client.get(reverse("accounts:logout")).status_code == 405
    assert is_signed_in(client)
    assert client.post(reverse("accounts:logout")).headers["Location"] == SIGN_IN
    assert not is_signed_in(client)


def test_signed_in_users_skip_the_login_page(client: Client) -> None:
    client.force_login(make_user(), backend="django.contrib.auth.backends.ModelBackend")
    assert client.get(SIGN_IN).headers["Location"] == "/"
