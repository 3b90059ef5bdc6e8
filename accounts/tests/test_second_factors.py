"""Second factors: authenticator apps, recovery codes and passkeys, on pages and in the API."""

import json
import re
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal import auth
from allauth.mfa.totp.internal.auth import TOTP, format_hotp_value, generate_totp_secret, hotp_value
from django.core.cache import cache
from django.test import Client
from pytest_django import Settings

from accounts.models import ApiToken, User
from accounts.second_factors import services as second_factors
from accounts.tests.soft_passkey import SoftPasskey
from gpuplatform.tests.admin_pages import confirm
from tests.api import client_of
from tests.factories import PASSWORD, make_user
from tests.web import browser_of, text_of

pytestmark = pytest.mark.django_db

SIGN_IN = "/accounts/sign-in/"
ENTER = "/accounts/second-factor/enter/"
APP = "/accounts/second-factor/app/"
ADD_PASSKEY = "/accounts/second-factor/passkeys/add/"
PASSKEY_SIGN_IN = "/accounts/second-factor/passkeys/sign-in/"


@pytest.fixture(autouse=True)
def _fresh_limits() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def secret() -> str:
    return str(generate_totp_secret())


@pytest.fixture
def user(secret: str) -> User:
    """A user with an authenticator app and recovery codes."""
    user = make_user()
    TOTP.activate(user, secret)
    RecoveryCodes.activate(user)
    return user


def code_of(secret: str, steps: int = 0) -> str:
    """Return the code of now, or of so many periods of 30 s later."""
    return str(format_hotp_value(hotp_value(secret, int(time.time()) // 30 + steps)))


@pytest.fixture
def _slow_web_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the clock that django-allauth reads an hour back."""
    monkeypatch.setattr(auth, "time", SimpleNamespace(time=lambda: time.time() - 3600))


def recovery_codes(user: User) -> list[str]:
    return list(RecoveryCodes.activate(user).get_unused_codes())


def with_password(user: User) -> Client:
    """Return a browser that has sent the right password."""
    client = Client()
    client.post(SIGN_IN, {"login": user.email, "password": PASSWORD, "next": "/folders/"})
    return client


def is_signed_in(client: Client) -> bool:
    return "_auth_user_id" in client.session


def token(user: User, **body: str) -> tuple[int, dict[str, Any]]:
    response = client_of().post("/api/v1/auth/token/", {"email": user.email, "password": PASSWORD} | body)
    return response.status_code, response.json()


def options_in(page: str, kind: str) -> dict[str, Any]:
    found = re.search(r'<script id="passkey-options"[^>]*>(.*?)</script>', page)
    assert found
    options: dict[str, Any] = json.loads(found[1])[kind]
    return options


def confirmed(user: User) -> Client:
    """Return a browser in which the user has just confirmed the password."""
    client = browser_of(user)
    client.post("/accounts/confirm/", {"password": PASSWORD}, secure=True)
    return client


def add_passkey(user: User) -> SoftPasskey:
    client, passkey = confirmed(user), SoftPasskey()
    options = options_in(client.get(ADD_PASSKEY, secure=True).content.decode(), "creation_options")
    added = client.post(ADD_PASSKEY, {"name": "laptop", "credential": passkey.made(options)}, secure=True)
    assert added.status_code == 302, added.content
    return passkey


def sign_in_with(passkey: SoftPasskey, client: Client, origin: str = "https://testserver") -> Any:
    asked = client.get(PASSKEY_SIGN_IN, headers={"accept": "application/json"}, secure=True)
    credential = passkey.used(asked.json()["request_options"], origin)
    return client.post(PASSKEY_SIGN_IN, {"credential": credential}, secure=True, follow=True)


class TestApp:
    def test_it_is_set_up_with_password_and_code(self) -> None:
        user = make_user()
        client = browser_of(user)
        assert client.get(APP).headers["Location"].startswith("/accounts/confirm/")
        client.post("/accounts/confirm/", {"password": PASSWORD})
        secret = re.search(r'<code id="secret">([A-Z2-7]+)</code>', text_of(client, APP))
        assert secret
        assert client.post(APP, {"code": "000000"}).status_code == 200
        assert not second_factors.has_any(user)
        assert client.post(APP, {"code": code_of(secret[1])}).headers["Location"] == "/accounts/second-factor/codes/"
        assert recovery_codes(user)[0] in text_of(client, "/accounts/second-factor/codes/")
        assert second_factors.has_any(user)

    def test_a_password_alone_does_not_sign_in(self, user: User, secret: str) -> None:
        client = with_password(user)
        assert not is_signed_in(client)
        assert client.get("/accounts/").status_code == 302
        assert client.post(ENTER, {"code": "12"}).status_code == 200
        assert not is_signed_in(client)
        assert client.post(ENTER, {"code": code_of(secret)}).headers["Location"] == "/folders/"
        assert is_signed_in(client)

    def test_codes_of_any_kind_are_good_once(self, user: User, secret: str) -> None:
        for code in (code_of(secret), recovery_codes(user)[0]):
            first, second = with_password(user), with_password(user)
            for client in (first, second):
                client.post(ENTER, {"code": code})
            assert is_signed_in(first)
            assert not is_signed_in(second)

    @pytest.mark.usefixtures("_slow_web_server")
    def test_codes_are_checked_by_the_database_clock(self, user: User, secret: str) -> None:
        slow = with_password(user)
        slow.post(ENTER, {"code": code_of(secret, -120)})
        assert not is_signed_in(slow)
        slow.post(ENTER, {"code": code_of(secret)})
        assert is_signed_in(slow)

    @pytest.mark.usefixtures("_slow_web_server")
    def test_an_app_is_added_by_the_database_clock(self) -> None:
        user = make_user()
        client = confirmed(user)
        found = re.search(r'<code id="secret">([A-Z2-7]+)</code>', client.get(APP, secure=True).content.decode())
        assert found
        client.post(APP, {"code": code_of(found[1])}, secure=True)
        assert second_factors.has_any(user)

    def test_a_used_code_stays_used_while_it_is_right(self, user: User, secret: str) -> None:
        code = code_of(secret, 1)  # right for a minute at least
        mark = TOTP(Authenticator.objects.get(type="totp"))._get_used_cache_key(code)
        first, second = with_password(user), with_password(user)
        first.post(ENTER, {"code": code})
        assert is_signed_in(first)
        assert cache.delete(mark)  # as after 30 seconds
        second.post(ENTER, {"code": f"{code[:3]} {code[3:]}"})
        assert not is_signed_in(second)
        assert token(user, code=code)[0] == 400
        assert token(user, code=code_of(secret))[0] == 200

    def test_its_secret_is_stored_encrypted(self, user: User, secret: str, settings: Settings) -> None:
        stored = json.dumps(list(Authenticator.objects.values_list("data", flat=True)))
        assert secret not in stored
        settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "a new key", [settings.SECRET_KEY]
        assert Authenticator.objects.get(type="totp").wrap().validate_code(code_of(secret))
        settings.SECRET_KEY_FALLBACKS = []
        empty = [code_of("", steps) for steps in (-1, 0, 1)]
        for code in (code_of(secret, 1), *empty):
            assert not Authenticator.objects.get(type="totp").wrap().validate_code(code)


class TestApiTokens:
    def test_one_takes_the_code_too(self, user: User, secret: str) -> None:
        status, body = token(user)
        assert status == 400
        assert "second factor" in str(body)
        assert token(user, code="000000")[0] == 400
        assert not ApiToken.objects.exists()
        code = code_of(secret)
        assert [token(user, code=code)[0] for _ in range(2)] == [200, 400]
        assert token(user, code=recovery_codes(user)[0])[0] == 200

    def test_a_wrong_password_says_nothing_of_it(self, user: User) -> None:
        assert token(user, password="wrong", code="1") == token(make_user(), password="wrong")

    def test_wrong_codes_lock_pages_and_api(self, user: User, secret: str) -> None:
        for _ in range(10):
            cache.clear()  # the limit in Redis comes earlier, see below
            token(user, code="000000")
        cache.clear()
        assert token(user, code=code_of(secret))[0] == 429
        assert Client().post(SIGN_IN, {"login": user.email, "password": PASSWORD}).status_code == 429

    def test_wrong_codes_on_pages_lock_the_page_of_codes(self, user: User, secret: str) -> None:
        client = with_password(user)
        for _ in range(10):
            cache.clear()
            client.post(ENTER, {"code": "000000"})
        cache.clear()
        locked = client.post(ENTER, {"code": code_of(secret)})
        assert locked.status_code == 429
        assert user.email in locked.content.decode()
        assert not is_signed_in(client)

    def test_many_addresses_cannot_try_codes(self, user: User, secret: str) -> None:
        for number in range(5):
            token(user, code=f"00000{number}")
        assert token(user, code=code_of(secret))[0] == 400
        cache.clear()
        assert token(user, code=code_of(secret))[0] == 200


class TestPasskeys:
    def test_one_signs_in_alone(self) -> None:
        user, client = make_user(), Client()
        sign_in_with(add_passkey(user), client)
        assert client.session["_auth_user_id"] == str(user.pk)

    def test_it_is_a_second_factor(self) -> None:
        user = make_user()
        passkey, client = add_passkey(user), with_password(user)
        assert not is_signed_in(client)
        options = options_in(client.get(ENTER, secure=True).content.decode(), "request_options")
        client.post(ENTER, {"credential": passkey.used(options)}, secure=True)
        assert is_signed_in(client)
        assert token(user)[0] == 400

    def test_one_that_an_app_has_asked_for_is_refused(self) -> None:
        passkey, client = add_passkey(make_user()), Client()
        sign_in_with(passkey, client, "https://s1.apps.testserver")
        assert not is_signed_in(client)

    @pytest.mark.parametrize("credential", ["", "{", "[]", "{}", '{"response": {"clientDataJSON": "x"}}'])
    def test_malformed_ones_are_refused(self, credential: str) -> None:
        client = confirmed(make_user())
        client.get(ADD_PASSKEY, secure=True)
        assert client.post(ADD_PASSKEY, {"name": "x", "credential": credential}, secure=True).status_code == 200
        assert Client().post(PASSKEY_SIGN_IN, {"credential": credential}, secure=True).status_code == 302
        assert not Authenticator.objects.exists()

    def test_a_new_password_is_needed_once_with_it(self) -> None:
        user = make_user()
        passkey, client = add_passkey(user), Client()
        user.set_password(PASSWORD + "2")
        user.save()
        refused = sign_in_with(passkey, client)
        assert "The password was changed." in refused.content.decode()
        assert not is_signed_in(client)
        client.post(SIGN_IN, {"login": user.email, "password": PASSWORD + "2"}, secure=True)
        options = options_in(client.get(ENTER, secure=True).content.decode(), "request_options")
        client.post(ENTER, {"credential": passkey.used(options)}, secure=True)
        assert is_signed_in(client)
        again = Client()
        sign_in_with(passkey, again)
        assert is_signed_in(again)

    def test_a_disabled_account_is_not_signed_in(self) -> None:
        user, client = make_user(), Client()
        passkey = add_passkey(user)
        user.is_active = False
        user.save()
        assert "This account is disabled" in sign_in_with(passkey, client).content.decode()
        assert not is_signed_in(client)

    def test_those_of_others_are_not_there(self) -> None:
        add_passkey(make_user())
        client, passkey = confirmed(make_user()), Authenticator.objects.get(type="webauthn")
        for action in ("remove", "edit"):
            path = f"/accounts/second-factor/passkeys/{passkey.pk}/{action}/"
            assert client.post(path, {"name": "mine"}, secure=True).status_code == 404


def test_superadmins_remove_lost_second_factors(user: User) -> None:
    admin = browser_of(make_user(is_superuser=True))
    confirm(admin, "/admin/accounts/user/", "remove_second_factors", [user.pk])
    assert not Authenticator.objects.exists()
    assert is_signed_in(with_password(user))


def test_all_pages_of_it_are_shown(user: User) -> None:
    client = confirmed(user)
    add_passkey(user)
    key = Authenticator.objects.get(type="webauthn").pk
    paths = ("", "app/remove/", "codes/", "codes/new/", "codes/file/", "confirm/", "passkeys/add/", "passkeys/confirm/")
    for path in (*paths, f"passkeys/{key}/edit/", f"passkeys/{key}/remove/"):
        assert text_of(client, f"/accounts/second-factor/{path}")
