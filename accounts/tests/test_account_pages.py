"""The account's pages: profile, password, API tokens, SSH host key and login sessions."""

import re
from datetime import timedelta

import pytest
from asyncssh import generate_private_key
from django.contrib.sessions.models import Session as DjangoSession
from django.test import Client
from django.utils import timezone
from pytest_django import Settings
from rest_framework.test import APIClient

from accounts.credentials.ssh_keys import add_ssh_key, record_ssh_host_key
from accounts.login_sessions import services as logins
from accounts.models import ApiToken, LoginSession, User
from tests.api import client_of
from tests.factories import PASSWORD, make_user
from tests.web import browser_of, text_of

pytestmark = pytest.mark.django_db

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0"
NEW_PASSWORD = "quite another password"


@pytest.fixture
def user() -> User:
    return make_user()


def sign_in(user: User, **headers: str) -> Client:
    client = Client(headers=headers)
    response = client.post("/accounts/sign-in/", {"login": user.email, "password": PASSWORD})
    assert response.status_code == 302
    return client


def program(token: str) -> APIClient:
    client = client_of()
    client.credentials(HTTP_AUTHORIZATION=f"Token {token}")
    return client


def test_the_name_is_changed(user: User) -> None:
    browser = browser_of(user)
    browser.post("/accounts/", {"first_name": "Ada", "last_name": "Lovelace"})
    assert 'value="Lovelace"' in text_of(browser, "/accounts/")


class TestPassword:
    def change(self, client: Client, old: str = PASSWORD, new: str = NEW_PASSWORD) -> int:
        fields = {"oldpassword": old, "password1": new, "password2": new}
        return client.post("/accounts/password/", fields).status_code

    def test_it_ends_all_other_access(self, user: User) -> None:
        here, elsewhere = sign_in(user), sign_in(user)
        ApiToken.objects.issue(user)
        add_ssh_key(user, generate_private_key("ssh-ed25519").export_public_key().decode())
        assert self.change(here) == 302
        assert not user.auth_token_set.exists()
        assert not user.ssh_keys.exists()
        assert here.get("/accounts/").status_code == 200
        assert elsewhere.get("/accounts/").status_code == 302
        assert logins.open_logins(user).count() == 1
        user.refresh_from_db()
        assert user.check_password(NEW_PASSWORD)

    def test_a_wrong_or_weak_one_changes_nothing(self, user: User) -> None:
        browser = browser_of(user)
        assert self.change(browser, old="wrong") == 200
        assert self.change(browser, new="short") == 200
        user.refresh_from_db()
        assert user.check_password(PASSWORD)

    def test_wrong_ones_count_as_failed_sign_ins(self, user: User) -> None:
        browser = browser_of(user)
        codes = [self.change(browser, old="wrong") for _ in range(11)]
        assert codes[0] == 200
        assert codes[-1] == 429


class TestTokens:
    def make(self, client: Client, name: str = "backup", scope: str = "full") -> str:
        response = client.post("/accounts/tokens/", {"name": name, "scope": scope, "days": "7"})
        found = re.search(r'id="token-text" value="([0-9a-f]{64})"', response.content.decode())
        assert found
        return found[1]

    def test_one_is_shown_once_and_works(self, user: User) -> None:
        browser = browser_of(user)
        text = self.make(browser)
        assert program(text).get("/api/v1/me/").status_code == 200
        page = text_of(browser, "/accounts/tokens/")
        assert "backup" in page
        assert text not in page
        row = user.auth_token_set.get()
        assert row.last_used_at is not None
        assert row.expiry is not None
        assert timedelta(days=6) < row.expiry - timezone.now() <= timedelta(days=7)

    def test_sending_the_form_twice_makes_one(self, user: User) -> None:
        browser = browser_of(user)
        self.make(browser)
        again = browser.post("/accounts/tokens/", {"name": "backup", "scope": "full", "days": "7"})
        assert again.status_code == 422
        assert "You have a token of this name already." in again.content.decode()
        assert user.auth_token_set.count() == 1

    def test_one_for_reading_changes_nothing(self, user: User) -> None:
        client = program(self.make(browser_of(user), scope="read"))
        assert client.get("/api/v1/ssh-keys/").status_code == 200
        assert client.post("/api/v1/ssh-keys/", {"key": "x"}, format="json").status_code == 403

    def test_a_deleted_one_is_refused(self, user: User) -> None:
        browser = browser_of(user)
        client = program(self.make(browser))
        browser.post(f"/accounts/tokens/{user.auth_token_set.get().uid}/delete/")
        assert client.get("/api/v1/me/").status_code == 401

    def test_a_strangers_is_not_there(self, user: User) -> None:
        row, _ = ApiToken.objects.issue(user)
        assert browser_of(make_user()).post(f"/accounts/tokens/{row.uid}/delete/").status_code == 404
        assert user.auth_token_set.exists()


class TestApi:
    def test_tokens_are_made_listed_and_deleted(self, user: User) -> None:
        client = client_of(user)
        body = {"name": "backup", "scope": "read", "days": 30}
        made = client.post("/api/v1/tokens/", body)
        assert made.status_code == 201
        assert program(made.json()["token"]).get("/api/v1/me/").status_code == 200
        assert client.post("/api/v1/tokens/", body).json()["errors"]["name"] == [
            "You have a token of this name already."
        ]
        (listed,) = client.get("/api/v1/tokens/").json()["results"]
        assert listed["name"] == "backup"
        assert "token" not in listed
        assert client_of(make_user()).delete(f"/api/v1/tokens/{listed['id']}/").status_code == 404
        assert client.delete(f"/api/v1/tokens/{listed['id']}/").status_code == 204
        assert not user.auth_token_set.exists()

    @pytest.mark.parametrize(("field", "value"), [("days", 0), ("days", 366), ("scope", "all"), ("name", " ")])
    def test_bad_input_is_refused_at_its_field(self, user: User, field: str, value: object) -> None:
        body = {"name": "backup", "scope": "full", "days": 30, field: value}
        refused = client_of(user).post("/api/v1/tokens/", body)
        assert refused.status_code == 400
        assert list(refused.json()["errors"]) == [field]

    def test_name_and_password_are_changed(self, user: User) -> None:
        client = client_of(user)
        assert client.patch("/api/v1/me/", {"first_name": "Ada", "last_name": "L"}).json()["name"] == "Ada L"
        ApiToken.objects.issue(user)
        wrong = client.post("/api/v1/me/password/", {"password": "wrong", "new_password": NEW_PASSWORD})
        weak = client.post("/api/v1/me/password/", {"password": PASSWORD, "new_password": "short"})
        assert list(wrong.json()["errors"]) == ["password"]
        assert list(weak.json()["errors"]) == ["new_password"]
        assert user.auth_token_set.exists()
        body = {"password": PASSWORD, "new_password": NEW_PASSWORD}
        assert client.post("/api/v1/me/password/", body).status_code == 204
        assert not user.auth_token_set.exists()
        user.refresh_from_db()
        assert user.check_password(NEW_PASSWORD)

    def test_login_sessions_are_listed_and_ended(self, user: User) -> None:
        browser, client = sign_in(user, **{"User-Agent": FIREFOX}), client_of(user)
        (listed,) = client.get("/api/v1/logins/").json()["results"]
        assert (listed["browser"], listed["system"]) == ("Firefox", "Linux")
        assert client_of(make_user()).delete(f"/api/v1/logins/{listed['id']}/").status_code == 404
        assert client.delete(f"/api/v1/logins/{listed['id']}/").status_code == 204
        assert browser.get("/accounts/").status_code == 302


class TestLogins:
    def test_each_browser_is_listed_and_can_be_ended(self, user: User) -> None:
        here, elsewhere = sign_in(user), sign_in(user, **{"User-Agent": FIREFOX})
        page = text_of(here, "/accounts/logins/")
        assert "Firefox on Linux" in page
        assert page.count("this browser") == 1
        other = LoginSession.objects.get(agent=FIREFOX)
        here.post(f"/accounts/logins/{other.pk}/end/")
        assert elsewhere.get("/accounts/").status_code == 302
        assert here.get("/accounts/").status_code == 200

    def test_all_others_are_ended_at_once(self, user: User) -> None:
        here, *others = (sign_in(user) for _ in range(3))
        here.post("/accounts/logins/others/end/")
        assert [client.get("/accounts/").status_code for client in (here, *others)] == [200, 302, 302]

    def test_a_strangers_is_not_there(self, user: User) -> None:
        client = sign_in(user)
        login = user.logins.get()
        assert browser_of(make_user()).post(f"/accounts/logins/{login.pk}/end/").status_code == 404
        assert client.get("/accounts/").status_code == 200

    def test_signing_out_removes_it(self, user: User) -> None:
        client = sign_in(user)
        client.post("/accounts/sign-out/")
        assert not LoginSession.objects.exists()

    def test_use_is_recorded_again_after_a_while(self, user: User) -> None:
        client = sign_in(user)
        LoginSession.objects.all().delete()  # as a login session from before the table
        session = client.session
        session[logins.SEEN_AT] = 0
        session.save()
        client.get("/accounts/")
        assert user.logins.get().session_id == client.session.session_key

    def test_it_ends_by_disuse_or_by_age(self, user: User, settings: Settings) -> None:
        client = sign_in(user)
        started = timezone.now() - timedelta(hours=settings.COMPUTE_LOGIN_HOURS - 1)
        user.logins.update(started_at=started)
        session = client.session
        session[logins.SEEN_AT] = 0
        session.save()
        client.get("/accounts/")
        expiry = DjangoSession.objects.get().expire_date
        assert expiry == started + timedelta(hours=settings.COMPUTE_LOGIN_HOURS)
        user.logins.update(started_at=timezone.now())
        session = client.session
        session[logins.SEEN_AT] = 0
        session.save()
        client.get("/accounts/")
        idle = DjangoSession.objects.get().expire_date - user.logins.get().last_seen_at
        assert idle == timedelta(hours=settings.COMPUTE_LOGIN_IDLE_HOURS)
        DjangoSession.objects.update(expire_date=timezone.now())
        assert client.get("/accounts/").status_code == 302

    def test_expired_ones_are_not_listed(self, user: User) -> None:
        sign_in(user)
        DjangoSession.objects.update(expire_date=timezone.now())
        assert not logins.open_logins(user).exists()


def test_the_host_key_is_shown(user: User) -> None:
    key = generate_private_key("ssh-ed25519", comment="a comment")
    record_ssh_host_key(key.export_public_key().decode())
    page = text_of(browser_of(user), "/accounts/ssh-keys/")
    assert key.get_fingerprint() in page
    assert f"[127.0.0.1]:8022 {' '.join(key.export_public_key().decode().split()[:2])}" in page
