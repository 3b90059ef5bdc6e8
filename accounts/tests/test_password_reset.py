"""A new password by mail."""

import re
from collections.abc import Iterator

import pytest
from asyncssh import generate_private_key
from django.core import mail
from django.core.cache import cache
from django.core.mail.backends.base import BaseEmailBackend
from django.test import Client
from pytest_django import Settings

import accounts.signing_in.mail
from accounts.credentials.ssh_keys import add_ssh_key
from accounts.models import ApiToken, User
from tests.factories import PASSWORD, make_user
from tests.web import browser_of

pytestmark = pytest.mark.django_db

RESET = "/accounts/password/reset/"
NEW_PASSWORD = "quite another password"


@pytest.fixture(autouse=True)
def _mails_at_once(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Iterator[None]:
    """Mails are sent within the request, and limits begin anew."""
    monkeypatch.setattr(accounts.signing_in.mail, "send_soon", accounts.signing_in.mail.send_now)
    settings.COMPUTE_PUBLIC_URL = "https://gpu.example.org"
    cache.clear()
    yield
    cache.clear()


class BrokenBackend(BaseEmailBackend):
    def send_messages(self, email_messages: object) -> int:
        raise OSError("connection refused")


def link_for(email: str, **headers: str) -> str:
    """Ask for a link and return its path, "" if no mail came."""
    mail.outbox.clear()
    assert Client(headers=headers).post(RESET, {"email": email}).headers["Location"] == f"{RESET}sent/"
    if not mail.outbox:
        return ""
    (message,) = mail.outbox
    assert message.to == [email.lower()]
    found = re.search(r"https://gpu\.example\.org(/\S+)", str(message.body))
    assert found
    return found[1]


def choose(link: str, password: str = NEW_PASSWORD) -> Client:
    client = Client()
    form = client.get(link)
    if form.status_code == 302:
        client.post(form.headers["Location"], {"password1": password, "password2": password})
    return client


def test_a_link_is_good_once_and_ends_all_access() -> None:
    user = make_user(email="ada@example.org")
    ApiToken.objects.issue(user)
    add_ssh_key(user, generate_private_key("ssh-ed25519").export_public_key().decode())
    browser, link = browser_of(user), link_for("Ada@example.org")
    choose(link)
    user.refresh_from_db()
    assert user.check_password(NEW_PASSWORD)
    assert not user.auth_token_set.exists()
    assert not user.ssh_keys.exists()
    assert browser.get("/accounts/").status_code == 302
    choose(link, "a third long password")
    user.refresh_from_db()
    assert user.check_password(NEW_PASSWORD)
    assert "no longer good" in Client().get(link).content.decode()


def test_a_weak_password_is_refused() -> None:
    user = make_user(email="ada@example.org")
    choose(link_for("ada@example.org"), "short")
    user.refresh_from_db()
    assert user.check_password(PASSWORD)


@pytest.mark.parametrize("email", ["nobody@example.org", "disabled@example.org", "replaced@example.org"])
def test_addresses_of_no_account_look_the_same_and_get_nothing(email: str) -> None:
    make_user(email="disabled@example.org", is_active=False)
    user = make_user(email="replaced@example.org")
    user.email = "new@example.org"
    user.save()
    assert not link_for(email)
    assert link_for("new@example.org")


def test_a_link_never_leads_where_the_request_says() -> None:
    make_user(email="ada@example.org")
    assert link_for("ada@example.org", Host="localhost")


def test_links_are_not_asked_for_without_end() -> None:
    make_user(email="ada@example.org")
    codes = [Client().post(RESET, {"email": "ada@example.org"}).status_code for _ in range(6)]
    assert codes == [302] * 5 + [429]


def test_a_mail_is_in_its_readers_language() -> None:
    make_user(email="mina@example.org", language="ko")
    link_for("mina@example.org", **{"Accept-Language": "en"})
    assert re.search("[가-힣]", str(mail.outbox[0].subject))


def test_a_link_lifts_the_lock_out() -> None:
    user = make_user(email="ada@example.org")
    client = Client()
    for _ in range(10):
        client.post("/accounts/sign-in/", {"login": user.email, "password": "wrong"})
    choose(link_for(user.email))
    assert client.post("/accounts/sign-in/", {"login": user.email, "password": NEW_PASSWORD}).status_code == 302


def test_the_owner_is_notified_of_a_new_password() -> None:
    user = make_user(email="ada@example.org")
    fields = {"oldpassword": PASSWORD, "password1": NEW_PASSWORD, "password2": NEW_PASSWORD}
    browser_of(user).post("/accounts/password/", fields)
    assert [message.to for message in mail.outbox] == [["ada@example.org"]]


def test_a_broken_mail_server_fails_no_page(settings: Settings) -> None:
    settings.EMAIL_BACKEND = f"{__name__}.BrokenBackend"
    make_user(email="ada@example.org")
    assert not link_for("ada@example.org")


def test_a_user_without_password_chooses_one_by_mail() -> None:
    user = make_user(email="ada@example.org", password=None)
    assert browser_of(user).get("/accounts/password/", follow=True).redirect_chain[-1][0] == RESET
    choose(link_for("ada@example.org"))
    assert User.objects.get().check_password(NEW_PASSWORD)
