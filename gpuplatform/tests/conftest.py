"""Fixtures of tests of the administration."""

import pytest
from django.test import Client

from tests.factories import (
    make_user,
)


@pytest.fixture
def superadmin(client: Client) -> Client:
    """A browser in which a superadmin is signed in."""
    client.force_login(make_user(is_superuser=True), backend="django.contrib.auth.backends.ModelBackend")
    return client
