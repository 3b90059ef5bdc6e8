"""No address responds to any method with a server error, whoever asks."""

import re
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import pytest
from django.core.cache import cache
from django.db import transaction
from django.test import Client
from django.urls import get_resolver, reverse
from pytest_django import Settings

from tests.test_access_matrix import World, patterns

# Streams without an end, and what asks a host that is not there, have tests of their own.
OUTSIDE: Final = re.compile(r".*(follow|losses|found-ports|terminal|zip|logs)|readyz")  # its 503 is the answer
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")
APP_LABEL: Final = {"admin:app_list": {"app_label": "accounts"}}

pytestmark = pytest.mark.django_db


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize(
    ("role", "methods"),
    [
        ("superadmin", ("GET", "OPTIONS")),
        *(pytest.param(role, METHODS, marks=pytest.mark.long) for role in ("stranger", "owner", "superadmin")),
    ],
)
def test_no_address_has_a_server_error(role: str, methods: tuple[str, ...], world: World, settings: Settings) -> None:
    settings.COMPUTE_API_REQUESTS_PER_MINUTE = 100_000
    client = Client(raise_request_exception=False)
    if user := world.users[role]:
        client.force_login(user)
    cookies = deepcopy(client.cookies)
    failed: list[str] = []
    for name, keys, _ in patterns(get_resolver()):
        if OUTSIDE.match(name):
            continue
        path = reverse(name, kwargs={key: world.argument(name, key) for key in keys} | APP_LABEL.get(name, {}))
        cache.clear()
        failed += [f"{method} {path} ({name}): {status}" for method, status in _server_errors(client, path, methods)]
        client.cookies = deepcopy(cookies)
    assert not failed, "\n".join(failed)


def _server_errors(client: Client, path: str, methods: tuple[str, ...]) -> list[tuple[str, int]]:
    """Return the methods that have a 5xx at this path; what a request does is undone."""
    found: list[tuple[str, int]] = []
    for method in methods:
        with transaction.atomic():
            response: Any = client.generic(method, path)
            transaction.set_rollback(True)
        if response.status_code >= 500:
            found.append((method, response.status_code))
    return found
