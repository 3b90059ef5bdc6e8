"""A policy demands a second factor: who has none sets one up before anything else."""

import re

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from django.test import Client

from accounts.models import ApiToken, Membership, ResourcePolicy, User
from accounts.tests.test_second_factors import APP, code_of, token
from tests.factories import PASSWORD, make_policy, make_project, make_user
from tests.web import browser_of, text_of

pytestmark = pytest.mark.django_db

SECOND_FACTOR = "/accounts/second-factor/"


@pytest.fixture
def policy() -> ResourcePolicy:
    return make_policy(name="strict", require_second_factor=True)


def signed_in(user: User) -> Client:
    client = Client()
    client.post("/accounts/sign-in/", {"login": user.email, "password": PASSWORD})
    return client


def may_go_on(client: Client) -> bool:
    page, api = client.get("/sessions/"), client.get("/api/v1/me/")
    assert (page.status_code, api.status_code) in {(200, 200), (302, 403), (302, 401)}
    return page.status_code == 200


def test_who_has_none_sets_one_up_and_goes_on(policy: ResourcePolicy) -> None:
    client = signed_in(make_user(policy=policy))
    assert client.get("/sessions/").headers["Location"] == SECOND_FACTOR
    refused = client.get("/api/v1/me/")
    assert (refused.status_code, refused.json()["code"]) == (403, "second_factor_due")
    assert client.get("/admin/").headers["Location"] == SECOND_FACTOR
    assert "Your policy demands a second factor" in text_of(client, SECOND_FACTOR)
    assert client.get(APP).headers["Location"].startswith("/accounts/confirm/")
    client.post("/accounts/confirm/", {"password": PASSWORD})
    secret = re.search(r'<code id="secret">([A-Z2-7]+)</code>', text_of(client, APP))
    assert secret
    assert client.post(APP, {"code": code_of(secret[1])}).status_code == 302
    assert may_go_on(client)


def test_removing_the_last_one_makes_it_due_again(policy: ResourcePolicy) -> None:
    user = make_user(policy=policy)
    TOTP.activate(user, generate_totp_secret())
    client = browser_of(user)
    client.post("/accounts/confirm/", {"password": PASSWORD})
    assert may_go_on(client)
    other = browser_of(user)
    ApiToken.objects.issue(user)
    client.post("/accounts/second-factor/app/remove/")
    assert not Authenticator.objects.filter(user=user, type="totp").exists()
    assert not may_go_on(client)
    assert client.get(SECOND_FACTOR).status_code == 200, "it stays signed in, to set up another"
    assert not may_go_on(other)
    assert not ApiToken.objects.exists()


def test_a_password_alone_gets_no_token(policy: ResourcePolicy) -> None:
    user = make_user(policy=policy)
    status, problem = token(user)
    assert (status, "demands a second factor" in str(problem)) == (400, True)
    assert not ApiToken.objects.exists()


def test_demanding_one_ends_what_a_password_alone_has_opened(policy: ResourcePolicy) -> None:
    ResourcePolicy.objects.update(require_second_factor=False)
    policy.refresh_from_db()
    alone, other, twice = make_user(policy=policy), make_user(), make_user(policy=policy)
    TOTP.activate(twice, generate_totp_secret())
    browsers = {user: signed_in(user) for user in (alone, other)} | {twice: browser_of(twice)}
    ApiToken.objects.issue(alone)
    named, _ = ApiToken.objects.issue(alone, name="ci")
    policy.require_second_factor = True
    policy.save()
    assert {user: may_go_on(browsers[user]) for user in browsers} == {alone: False, other: True, twice: True}
    assert list(ApiToken.objects.all()) == [named]
    setting_up = signed_in(alone)
    policy.save()
    assert setting_up.get(SECOND_FACTOR).status_code == 200  # and is not disturbed


def test_members_are_bound_by_the_policy_of_their_project(policy: ResourcePolicy) -> None:
    project, user = make_project(policy=policy), make_user()
    client = signed_in(user)
    assert may_go_on(client)
    Membership.objects.create(project=project, user=user)
    assert not may_go_on(client)
    assert not may_go_on(signed_in(user))
    Membership.objects.all().delete()
    free, late = make_project(), make_user()
    Membership.objects.create(project=free, user=late)
    client = signed_in(late)
    free.policy = policy
    free.save()
    assert not may_go_on(client)
    moved = make_user()
    client = signed_in(moved)
    moved.policy = policy
    moved.save()
    assert not may_go_on(client)
