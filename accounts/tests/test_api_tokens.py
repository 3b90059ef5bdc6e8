"""Tokens of the API: how one is got, used, revoked, and refused."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.core.cache import cache
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries
from rest_framework.request import Request
from rest_framework.test import APIRequestFactory

from accounts.credentials.authentication import ApiTokenAuthentication
from accounts.models import ApiToken, User
from tests.api import client_of
from tests.factories import PASSWORD, make_user

TOKEN_URL = "/api/v1/auth/token/"
ME_URL = "/api/v1/me/"
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _fresh_throttle() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


def ask(user: User, password: str = PASSWORD, email: str = "") -> tuple[int, dict[str, object]]:
    response = client_of().post(TOKEN_URL, {"email": email or user.email, "password": password})
    return response.status_code, response.json()


def status_with(authorization: str) -> tuple[int, str]:
    response = client_of().get(ME_URL, headers={"authorization": authorization})
    return response.status_code, response.json().get("detail", "")


def test_login_returns_an_api_token() -> None:
    user = make_user()
    status, body = ask(user)
    assert status == 200
    assert set(body) == {"token", "expiry"}
    assert status_with(f"Token {body['token']}") == (200, "")
    assert ApiToken.objects.get().digest not in str(body)


def test_the_email_is_taken_in_any_case() -> None:
    user = make_user(email="someone@example.org")
    assert ask(user, email="SomeOne@Example.ORG")[0] == 200


def test_all_failed_logins_look_the_same() -> None:
    disabled = make_user(is_active=False)
    answers = [ask(make_user(), "wrong"), ask(make_user(), email="nobody@example.org"), ask(disabled)]
    assert [(status, body["detail"]) for status, body in answers] == [
        (400, "The e-mail address or the password is wrong.")
    ] * 3
    assert answers[0] == answers[1] == answers[2]


def test_an_expired_token_does_not_prevent_a_new_one() -> None:
    user = make_user()
    response = client_of().post(
        TOKEN_URL, {"email": user.email, "password": PASSWORD}, headers={"authorization": "Token stale"}
    )
    assert response.status_code == 200


def test_too_many_failures_lock_out_the_right_password_too() -> None:
    user = make_user()
    for _ in range(10):
        ask(user, "wrong")
    response = client_of().post(TOKEN_URL, {"email": user.email.upper(), "password": PASSWORD})
    assert response.status_code == 429
    assert response["Retry-After"] == "900"
    assert "Try again in 15 minutes" in response.json()["detail"]
    assert not ApiToken.objects.exists()


def test_guesses_are_throttled_per_address_whatever_the_user() -> None:
    statuses = [_guess(number) for number in range(31)]
    assert statuses == [400] * 30 + [429]


def _guess(number: int) -> int:
    body = {"email": f"nobody{number}@example.org", "password": "x"}
    return client_of().post(TOKEN_URL, body, headers={"x-forwarded-for": f"10.0.0.{number}"}).status_code


def test_delete_revokes_only_the_token_in_use() -> None:
    user = make_user()
    _, used = ApiToken.objects.issue(user)
    _, other = ApiToken.objects.issue(user)
    response = client_of().delete(TOKEN_URL, headers={"authorization": f"Token {used}"})
    assert response.status_code == 204
    assert status_with(f"Token {used}")[0] == 401
    assert status_with(f"Token {other}")[0] == 200


def test_delete_without_a_token_is_refused() -> None:
    assert client_of().delete(TOKEN_URL).status_code == 401
    assert client_of(make_user()).delete(TOKEN_URL).status_code == 401, "by a login"


def test_an_expired_token_is_refused_in_words() -> None:
    row, token = ApiToken.objects.issue(make_user())
    ApiToken.objects.filter(pk=row.pk).update(expiry=timezone.now() - timedelta(seconds=1))
    assert status_with(f"Token {token}") == (401, "The token is unknown or has expired; get a new one.")


def test_authentication_reads_no_other_token(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    user = make_user()
    others = [ApiToken.objects.issue(user)[0] for _ in range(3)]
    row, token = ApiToken.objects.issue(user)
    ApiToken.objects.filter(pk=row.pk).update(last_used_at=timezone.now())
    ApiToken.objects.filter(pk=others[0].pk).update(expiry=timezone.now() - timedelta(seconds=1))
    request = Request(APIRequestFactory().get(ME_URL, headers={"authorization": f"Token {token}"}))
    with django_assert_num_queries(1):
        assert ApiTokenAuthentication().authenticate(request) == (user, row)


def test_a_new_token_deletes_those_that_have_expired() -> None:
    user, other = make_user(), make_user()
    for each in (user, other):
        row, _ = ApiToken.objects.issue(each)
        ApiToken.objects.filter(pk=row.pk).update(expiry=timezone.now() - timedelta(seconds=1))
    ApiToken.objects.issue(user)
    assert sorted(ApiToken.objects.values_list("user", flat=True)) == sorted([user.pk, other.pk])
    assert not ApiToken.objects.get(user=user).has_expired


def test_the_token_of_a_disabled_user_is_refused() -> None:
    user = make_user()
    _, token = ApiToken.objects.issue(user)
    User.objects.filter(pk=user.pk).update(is_active=False)
    assert status_with(f"Token {token}")[0] == 401


@pytest.mark.parametrize(
    "authorization",
    ["Token", "Token a b", "Token x", "Token \xff\xfe\xfa", "Token \x00", "Token " + "0" * 64, "Token " + "f" * 9000],
    ids=["empty", "two words", "short", "not text", "NUL", "unknown", "huge"],
)
def test_a_malformed_or_unknown_token_is_401(authorization: str) -> None:
    status, detail = status_with(authorization)
    assert (status, bool(detail)) == (401, True)


def test_no_token_is_401() -> None:
    response = client_of().get(ME_URL)
    assert response.status_code == 401
    assert response["WWW-Authenticate"] == "Token"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "email"),
        ({"email": "a@example.org"}, "password"),
        ({"email": "not an address", "password": "x"}, "email"),
        ({"email": "a@example.org\0", "password": "x"}, "email"),
        ({"email": "a@example.org", "password": "x\0"}, "password"),
        ({"email": {"a": 1}, "password": "x"}, "email"),
        ({"email": "a@example.org", "password": ["x"]}, "password"),
        ({"email": "a@example.org", "password": "x" * 5000}, "password"),
        ({"email": "a@example.org", "password": "x", "user": "root"}, "user"),
    ],
)
def test_bad_credentials_are_reported_at_their_field(body: object, field: str) -> None:
    response = client_of().post(TOKEN_URL, body)
    assert response.status_code == 400
    assert field in response.json()["errors"]


def test_credentials_must_be_an_object() -> None:
    response = client_of().post(TOKEN_URL, ["a"])
    assert (response.status_code, "list" in response.json()["detail"]) == (400, True)


def test_me_shows_who_i_am() -> None:
    user = make_user(first_name="Ada", last_name="Lovelace")
    assert client_of(user).get(ME_URL).json() == {
        "email": user.email,
        "name": "Ada Lovelace",
        "is_superadmin": False,
        "has_second_factor": False,
        "policy": {
            **{
                "name": user.policy.name,
                "max_lifetime": None,
                "disk_bytes": None,
                "disk_files": None,
                "max_folders": 20,
                "max_private_images": 5,
            },
            **{"max_extension": "00:00:00", "max_parked": 3, "max_parked_time": "14 00:00:00"},
            **{"allow_sudo": False, "allow_public_apps": True},
            **{"allow_conversion": False, "allow_unlisted_images": False},
        },
    }
