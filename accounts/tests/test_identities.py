"""Sign-in by an OpenID Connect provider: a real one, started for this module."""

import html
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from allauth.socialaccount.models import SocialAccount
from django.core.cache import cache
from django.test import Client
from oidc_provider_mock import User as ProviderUser
from oidc_provider_mock import run_server_in_thread
from pytest_django import Settings

from accounts.invitations import services as invitations
from accounts.models import User
from tests.factories import PASSWORD, make_policy, make_user
from tests.web import browser_of, text_of

pytestmark = [pytest.mark.django_db, pytest.mark.loopback]

SIGN_IN = "/accounts/identities/sso/sign-in/"
PEOPLE = {
    "ada": {"email": "Ada@example.org", "email_verified": True, "given_name": "Ada", "family_name": "Lovelace"},
    "as-text": {"email": "ada@example.org", "email_verified": "true"},
    "unverified": {"email": "ada@example.org", "email_verified": False},
    "false-as-text": {"email": "ada@example.org", "email_verified": "false"},
    "elsewhere": {"email": "ada@elsewhere.org", "email_verified": True},
    "without-address": {},
}


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    people = [ProviderUser(sub=sub, claims=claims) for sub, claims in PEOPLE.items()]
    with run_server_in_thread(user_claims=people) as server:
        yield f"http://localhost:{server.server_port}"


def apps(issuer: str) -> dict[str, Any]:
    app = {"provider_id": "sso", "name": "Lab account", "client_id": "gpu", "secret": "secret"}
    return {"openid_connect": {"OAUTH_PKCE_ENABLED": True, "APPS": [app | {"settings": {"server_url": issuer}}]}}


@pytest.fixture(autouse=True)
def _provider(issuer: str, settings: Settings) -> None:
    settings.SOCIALACCOUNT_PROVIDERS = apps(issuer)
    cache.clear()


def leave(client: Client, process: str = "login") -> str:
    """Press the button, and return where the page leads."""
    page = client.post(f"{SIGN_IN}?process={process}&next=/folders/")
    found = re.search(r'http-equiv="refresh" content="0; url=([^"]+)"', page.content.decode())
    assert found, page.content
    return html.unescape(found[1])


def sign_in(person: str, client: Client, process: str = "login") -> Any:
    """Sign in at the provider as a person, and return the response to what it redirects to."""
    back = requests.post(leave(client, process), data={"sub": person}, allow_redirects=False, timeout=30)
    address = urlsplit(back.headers["Location"])
    return client.get(f"{address.path}?{address.query}")


def is_signed_in(client: Client) -> bool:
    return "_auth_user_id" in client.session


def test_the_button_is_there_where_a_provider_is(settings: Settings) -> None:
    assert "Lab account" in text_of(Client(), "/accounts/sign-in/")
    settings.SOCIALACCOUNT_PROVIDERS = {}
    assert "Lab account" not in text_of(Client(), "/accounts/sign-in/")
    assert Client().post(SIGN_IN).status_code == 404


@pytest.mark.parametrize("person", ["ada", "as-text"])
def test_a_verified_address_signs_its_account_in(person: str, client: Client) -> None:
    user = make_user(email="ada@example.org")
    assert sign_in(person, client).headers["Location"] == "/folders/"
    assert client.session["_auth_user_id"] == str(user.pk)
    user.refresh_from_db()
    assert user.check_password(PASSWORD)
    user.email = "new@example.org"
    user.save()
    again = Client()
    sign_in(person, again)
    assert again.session["_auth_user_id"] == str(user.pk), "it is connected, whatever the address"


@pytest.mark.parametrize("person", ["unverified", "false-as-text", "without-address"])
def test_an_address_that_is_not_verified_signs_nobody_in(person: str, client: Client, settings: Settings) -> None:
    settings.COMPUTE_OIDC_NEW_ACCOUNTS = ["*"]
    make_user(email="ada@example.org")
    assert "You have no account here yet" in sign_in(person, client).content.decode()
    assert not is_signed_in(client)
    assert User.objects.count() == 1


@pytest.mark.parametrize(
    ("person", "domains", "is_made"),
    [("ada", [], False), ("ada", ["Example.org"], True), ("elsewhere", ["example.org"], False), ("ada", ["*"], True)],
)
def test_who_gets_a_new_account(
    person: str, domains: list[str], is_made: bool, client: Client, settings: Settings
) -> None:
    settings.COMPUTE_OIDC_NEW_ACCOUNTS = domains
    sign_in(person, client)
    assert is_signed_in(client) is is_made
    assert [(user.email, user.get_full_name()) for user in User.objects.all()] == (
        [("ada@example.org", "Ada Lovelace")] if is_made else []
    )


def test_who_is_invited_gets_the_account(client: Client) -> None:
    policy = make_policy(name="students")
    invitations.invite("ada@example.org", policy=policy, project=None, by=make_user(is_superuser=True))
    sign_in("ada", client)
    assert User.objects.get(email="ada@example.org").policy == policy
    assert invitations.pending_for("ada@example.org") is None


def test_a_disabled_account_is_not_signed_in(client: Client) -> None:
    make_user(email="ada@example.org", is_active=False)
    assert sign_in("ada", client).headers["Location"] == "/accounts/inactive/"
    assert not is_signed_in(client)


def test_a_second_factor_is_asked_for(client: Client) -> None:
    TOTP.activate(make_user(email="ada@example.org"), generate_totp_secret())
    assert sign_in("ada", client).headers["Location"] == "/accounts/second-factor/enter/"
    assert not is_signed_in(client)


def test_a_new_password_ends_the_connection(client: Client) -> None:
    user = make_user(email="ada@example.org")
    sign_in("ada", client)
    assert SocialAccount.objects.filter(user=user).exists()
    user.set_password("another long password")
    user.save()
    assert not SocialAccount.objects.exists()


def test_connecting_takes_the_password() -> None:
    user = make_user(email="grace@example.org")
    client = browser_of(user)
    assert sign_in("elsewhere", client, "connect").headers["Location"].startswith("/accounts/confirm/")
    assert not SocialAccount.objects.exists()
    client.post("/accounts/confirm/", {"password": PASSWORD})
    assert SocialAccount.objects.get().user == user
    page = text_of(client, "/accounts/identities/")
    assert "Lab account" in page
    client.post("/accounts/identities/", {"account": SocialAccount.objects.get().pk})
    assert not SocialAccount.objects.exists()


def test_an_answer_that_was_not_asked_for_is_refused(client: Client) -> None:
    make_user(email="ada@example.org")
    back = requests.post(leave(client), data={"sub": "ada"}, allow_redirects=False, timeout=30)
    address = urlsplit(back.headers["Location"])
    other = Client()
    assert other.get(f"{address.path}?{address.query}").status_code == 401
    assert not is_signed_in(other)


def test_a_get_leads_nowhere_by_itself(client: Client) -> None:
    assert "http-equiv" not in text_of(client, SIGN_IN)


def test_a_provider_that_is_away_is_said(client: Client, settings: Settings) -> None:
    settings.SOCIALACCOUNT_PROVIDERS = apps("http://127.0.0.1:1")
    page = client.post(SIGN_IN)
    assert page.status_code == 502
    assert "That did not work" in page.content.decode()


def test_no_redirect_leads_away_after_signing_in(client: Client) -> None:
    make_user(email="ada@example.org")
    page = client.post(f"{SIGN_IN}?process=login&next=https://evil.example/").content.decode()
    found = re.search(r'content="0; url=([^"]+)"', page)
    assert found
    back = requests.post(html.unescape(found[1]), data={"sub": "ada"}, allow_redirects=False, timeout=30)
    address = urlsplit(back.headers["Location"])
    assert client.get(f"{address.path}?{address.query}").headers["Location"] == "/"
