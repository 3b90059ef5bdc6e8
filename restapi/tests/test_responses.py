"""Rate limits and entity tags of the API's responses."""

import pytest
from django.core.cache import cache
from pytest_django import Settings

from tests.api import client_of
from tests.factories import make_user

pytestmark = pytest.mark.django_db

URL = "/api/v1/me/"


def test_each_user_has_a_rate_limit(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.COMPUTE_API_REQUESTS_PER_MINUTE = 2
    monkeypatch.setattr("restapi.throttling.time.time", lambda: 120_000_003.0)
    client, other = client_of(make_user()), client_of(make_user())
    cache.clear()
    answers = [client.get(URL) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert [answer["RateLimit"] for answer in answers] == [f'"user";r={left};t=57' for left in (1, 0, 0)]
    assert answers[0]["RateLimit-Policy"] == '"user";q=2;w=60'
    assert (answers[2]["Retry-After"], answers[2].json()["code"]) == ("57", "throttled")
    assert other.get(URL).status_code == 200


def test_an_unchanged_response_is_not_sent_again() -> None:
    client = client_of(make_user())
    first = client.get(URL)
    again = client.get(URL, headers={"If-None-Match": first["ETag"]})
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
    client.patch(URL, {"first_name": "Ada"})
    assert client.get(URL, headers={"If-None-Match": first["ETag"]}).status_code == 200


def test_strangers_and_errors_have_no_tag() -> None:
    assert "ETag" not in client_of().get(URL)
