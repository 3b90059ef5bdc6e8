"""What tokens for reading alone, tokens that are good no longer, and other secrets open at every address of the API."""

import secrets
from collections.abc import Iterator
from datetime import timedelta
from itertools import cycle
from pathlib import Path
from typing import Final

import pytest
from django.db import transaction
from django.urls import get_resolver, reverse
from pytest_django import Settings
from rest_framework.permissions import SAFE_METHODS
from rest_framework.test import APIClient

from accounts.models import ApiToken, TokenScope, User
from deployments.access.tokens import create_token
from deployments.models import Deployment
from endpoints import services as endpoints
from resources import clock
from sessions.models import Endpoint
from tests.test_access_matrix import World, patterns, verbs
from webhooks.delivery.stored_secrets import set_new_secret
from webhooks.models import Webhook

# Who gets a token by a password, a host that joins by a token of its own, everybody, and a method that is none.
WITHOUT_TOKEN: Final = ("POST api-token", "POST host-join", "GET spec-schema", "POST spec-schema")
MOST_OPERATIONS: Final = 200  # there are more: fewer have lost their names, or their place below /api/

pytestmark = pytest.mark.django_db


@pytest.fixture
def world(tmp_path: Path, settings: Settings) -> World:
    """Somebody's things, with as many requests a minute as a test takes."""
    settings.COMPUTE_API_REQUESTS_PER_MINUTE = 100_000
    return World(tmp_path)


def operations(world: World) -> Iterator[tuple[str, str, str]]:
    """Yield name, method and path of everything that the API does for who has a token."""
    for name, keys, pattern in patterns(get_resolver()):
        if name.startswith("admin:"):
            continue
        path = reverse(name, kwargs={key: world.argument(name, key) for key in keys})
        for verb in verbs(pattern) if path.startswith("/api/") else ():
            if f"{verb} {name}" not in WITHOUT_TOKEN:
                yield f"{verb} {name}", verb, path


def outcome(token: str, method: str, path: str) -> tuple[int, str]:
    """Return status and body of an empty request with this token, which is undone."""
    client = APIClient(raise_request_exception=False)
    with transaction.atomic():
        found = client.generic(method, path, headers={"Authorization": f"Token {token}"})
        transaction.set_rollback(True)
    return found.status_code, "(a stream)" if found.streaming else found.content.decode()


def others(world: World) -> Iterator[tuple[str, str]]:
    """Yield tokens that are good no longer, and secrets of users and hosts that are no tokens of the API."""
    owner, member = world.users["owner"], world.users["member"]
    assert owner
    assert member
    row, revoked = ApiToken.objects.issue(owner)
    row.delete()
    yield "revoked", revoked
    yield "expired", ApiToken.objects.issue(owner, lifetime=timedelta(seconds=-1))[1]
    User.objects.filter(pk=member.pk).update(is_active=False)
    yield "of a disabled user", ApiToken.objects.issue(member)[1]
    yield "of a deployment", create_token(Deployment.objects.get(), name="another", actor=owner).secret
    until = clock.now() + timedelta(hours=1)
    yield "of a share link", endpoints.share(Endpoint.objects.get(), expires=until, actor=owner).secret
    yield "of a webhook", set_new_secret(Webhook.objects.get())
    yield "as the key of a host", secrets.token_hex(32)


def test_no_other_credential_opens_the_api(world: World) -> None:
    in_turn = cycle(others(world))
    asked = [
        (operation, kind, outcome(token, *what))
        for (operation, *what), (kind, token) in zip(operations(world), in_turn, strict=False)
    ]
    assert len(asked) > MOST_OPERATIONS
    assert [each for each in asked if each[2][0] != 401] == []


def test_a_reading_token_changes_nothing_anywhere(world: World) -> None:
    superadmin = world.users["superadmin"]
    assert superadmin
    _, reading = ApiToken.objects.issue(superadmin, scope=TokenScope.READ)
    changing = [each for each in operations(world) if each[1] not in SAFE_METHODS]
    assert len(changing) > MOST_OPERATIONS / 3
    for operation, method, path in changing:
        status, body = outcome(reading, method, path)
        assert (status, "may only be used for reading" in body) == (403, True), operation
