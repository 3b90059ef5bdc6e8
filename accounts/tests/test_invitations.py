"""Invitations: made in the administration and the API, mailed, accepted once."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

import accounts.signing_in.mail
from accounts.invitations import services as invitations
from accounts.models import AccountInvitation, Project, ResourcePolicy, User
from tests.api import client_of
from tests.factories import PASSWORD, make_policy, make_user
from tests.web import browser_of, text_of

pytestmark = pytest.mark.django_db

API = "/api/v1/invitations/"
FIELDS = {"first_name": "Mina", "last_name": "Park", "password1": PASSWORD, "password2": PASSWORD}


@pytest.fixture(autouse=True)
def _mails_at_once(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    monkeypatch.setattr(accounts.signing_in.mail, "send_soon", accounts.signing_in.mail.send_now)
    settings.COMPUTE_PUBLIC_URL = "https://gpu.example.org"


@pytest.fixture
def admin() -> User:
    return make_user(is_superuser=True, email="ada@example.org", first_name="Ada")


@pytest.fixture
def link(admin: User, django_capture_on_commit_callbacks: Any) -> str:
    """The path of a link that was mailed to mina@example.org, whose account will be under the policy `students`."""
    policy = make_policy(name="students")
    project = Project.objects.create(name="vision")
    with django_capture_on_commit_callbacks(execute=True):
        invitations.invite("Mina@example.org", policy=policy, project=project, by=admin)
        assert not mail.outbox, "nothing is sent before the commit"
    return mailed()


def mailed() -> str:
    found = re.search(r"https://gpu\.example\.org(/\S+)", str(mail.outbox[-1].body))
    assert found
    return found[1]


def is_signed_in(client: Client) -> bool:
    return "_auth_user_id" in client.session


def test_an_accepted_one_makes_the_account_and_signs_it_in(link: str, client: Client) -> None:
    assert mail.outbox[0].to == ["mina@example.org"]
    assert "Ada invites you" in mail.outbox[0].body
    assert "mina@example.org" in text_of(client, link)
    assert client.post(link, FIELDS).headers["Location"] == "/"
    user = User.objects.get(email="mina@example.org")
    assert (user.get_full_name(), user.policy.name, user.is_superuser) == ("Mina Park", "students", False)
    assert [each.project.name for each in user.memberships.all()] == ["vision"]
    assert is_signed_in(client)
    assert Client().post("/accounts/sign-in/", {"login": user.email, "password": PASSWORD}).status_code == 302


def test_it_is_good_once(link: str) -> None:
    Client().post(link, FIELDS)
    again = Client()
    assert again.get(link).status_code == again.post(link, FIELDS).status_code == 404
    assert not is_signed_in(again)


def test_a_weak_password_is_refused(link: str, client: Client) -> None:
    assert client.post(link, FIELDS | {"password1": "short", "password2": "short"}).status_code == 200
    assert not User.objects.filter(email="mina@example.org").exists()


def test_expired_withdrawn_and_replaced_ones_are_refused(
    link: str, admin: User, client: Client, django_capture_on_commit_callbacks: Any
) -> None:
    invitation = AccountInvitation.objects.get()
    AccountInvitation.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert client.get(link).status_code == 404
    body = {"action": "send_again", "_selected_action": [invitation.pk]}
    with django_capture_on_commit_callbacks(execute=True):
        browser_of(admin).post("/admin/accounts/accountinvitation/", body)
    newer = mailed()
    assert client.get(link).status_code == 404
    assert client.get(newer).status_code == 200
    client_of(admin).delete(f"{API}{invitation.pk}/")
    assert client.get(newer).status_code == 404


def test_only_the_last_of_an_address_is_good(link: str, admin: User, client: Client) -> None:
    invitations.invite("mina@example.org", policy=ResourcePolicy.default(), project=None, by=admin)
    assert client.get(link).status_code == 404
    assert AccountInvitation.objects.count() == 1


def test_one_withdrawn_while_it_is_accepted_makes_nothing(link: str) -> None:
    invitation = invitations.find(link.rstrip("/").rpartition("/")[2])
    assert invitation
    AccountInvitation.objects.all().delete()
    with pytest.raises(invitations.InvitationError):
        invitations.accept(invitation, User())
    assert not User.objects.filter(email="mina@example.org").exists()


def test_its_link_is_stored_nowhere(link: str) -> None:
    token = link.rstrip("/").rpartition("/")[2]
    assert token not in str(list(AccountInvitation.objects.values()))


def test_the_administration_invites_many(admin: User, django_capture_on_commit_callbacks: Any) -> None:
    browser, page = browser_of(admin), "/admin/accounts/accountinvitation/add/"
    form = {"policy": ResourcePolicy.default().pk, "project": "", "addresses": "one@example.org\nTWO@example.org\n"}
    refused = browser.post(page, form | {"addresses": f"one@example.org\nnone\n{admin.email}"})
    assert "none is not an e-mail address." in refused.content.decode()
    assert f"{admin.email} has an account already." in refused.content.decode()
    assert not mail.outbox
    with django_capture_on_commit_callbacks(execute=True):
        assert browser.post(page, form).status_code == 302
    assert sorted(message.to[0] for message in mail.outbox) == ["one@example.org", "two@example.org"]
    assert "two@example.org" in text_of(browser, "/admin/accounts/accountinvitation/")


class TestApi:
    def test_superadmins_make_list_and_withdraw_them(self, admin: User, client: Client) -> None:
        api = client_of(admin)
        made = api.post(API, {"email": "mina@example.org"})
        assert made.status_code == 201
        assert made.json()["policy"] == "default"
        path = made.json()["link"].removeprefix("https://gpu.example.org")
        assert client.get(path).status_code == 200
        (listed,) = api.get(API).json()["results"]
        assert listed["email"] == "mina@example.org"
        assert "link" not in listed
        assert api.delete(f"{API}{listed['id']}/").status_code == 204
        assert client.get(path).status_code == 404

    def test_their_links_are_stored_with_no_idempotency_key(self, admin: User) -> None:
        made = client_of(admin).post(API, {"email": "mina@example.org"}, headers={"Idempotency-Key": "once"})
        assert (made.status_code, AccountInvitation.objects.exists()) == (400, False)

    @pytest.mark.parametrize(
        ("field", "value"), [("email", "x"), ("email", "ada@example.org"), ("policy", "none"), ("project", "none")]
    )
    def test_bad_input_is_refused_at_its_field(self, admin: User, field: str, value: str) -> None:
        refused = client_of(admin).post(API, {"email": "mina@example.org", field: value})
        assert refused.status_code == 400
        assert list(refused.json()["errors"]) == [field]

    def test_others_may_not(self, link: str) -> None:
        assert client_of().get(API).status_code == 401
        api = client_of(make_user())
        assert api.get(API).status_code == api.post(API, {"email": "x@example.org"}).status_code == 403
        assert api.delete(f"{API}{AccountInvitation.objects.get().pk}/").status_code == 403
