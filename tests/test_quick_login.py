"""A quick sign-in leaves what Django's own leaves."""

from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.contrib.sessions.models import Session
from django.test import Client

from accounts.models import User
from tests.factories import make_policy, make_user
from tests.quick_login import DJANGOS, quick_login

pytestmark = pytest.mark.django_db


def left_by(client: Client, user: User) -> dict[str, Any]:
    """Return what signing in has left, without what differs from one sign-in to the next."""
    row = Session.objects.select_related("login").get(pk=client.cookies[settings.SESSION_COOKIE_NAME].value)
    user.refresh_from_db()
    seen = (row.login.user, row.login.address, row.login.agent)
    data = {name: value for name, value in row.get_decoded().items() if name not in ("seen_at", "_session_expiry")}
    ends_at = row.login.last_seen_at + timedelta(hours=settings.COMPUTE_LOGIN_IDLE_HOURS)
    assert row.get_decoded()["_session_expiry"] == ends_at.isoformat()
    assert row.login.last_seen_at.timestamp() - row.get_decoded()["seen_at"] < 1
    return {"data": data, "login": seen, "backend": user.backend, "is_noted": user.last_login is not None}


@pytest.mark.parametrize("backend", [None, "django.contrib.auth.backends.ModelBackend"])
@pytest.mark.parametrize("demanded", [False, True])
def test_rows_and_cookie_are_those_of_django(demanded: bool, backend: str | None) -> None:
    user = make_user(policy=make_policy(require_second_factor=demanded))
    ours, djangos = Client(), Client()
    quick_login(ours, user, backend)
    left = left_by(ours, user)
    User.objects.update(last_login=None)
    DJANGOS(djangos, user, backend)
    assert left == left_by(djangos, user)
    assert left["data"].get("second_factor_due", False) is demanded
    cookies = [client.cookies[settings.SESSION_COOKIE_NAME] for client in (ours, djangos)]
    assert {**cookies[0]} == {**cookies[1]}


def test_another_user_takes_over_the_client() -> None:
    client = Client()
    first, second = make_user(), make_user()
    client.force_login(first)
    client.force_login(second)
    assert [*first.logins.all()] == []
    assert client.get("/").wsgi_request.user == second


def test_the_fixture_makes_sign_ins_quick() -> None:
    assert Client.force_login is quick_login
