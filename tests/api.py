"""Calls the API in tests, as a person or as a stranger."""

from rest_framework.test import APIClient

from accounts.models import User


def client_of(user: User | None = None) -> APIClient:
    """Return a client that speaks JSON, signed in as `user` if there is one; a view's exception becomes a 500."""
    client = APIClient(raise_request_exception=False)
    if user is not None:
        client.force_authenticate(user)
    client.default_format = "json"
    return client
