"""Calls the API in tests, as a person or as a stranger."""

from typing import Any

from rest_framework.test import APIClient

from accounts.models import User
from tests.api_schema import check_response


class CheckedClient(APIClient):
    """A client that fails where a response is not as the API's schema describes it."""

    def request(self, **kwargs: Any) -> Any:
        """Send the request and return its response."""
        response = super().request(**kwargs)
        check_response(kwargs["REQUEST_METHOD"], kwargs["PATH_INFO"], response)
        return response


def client_of(user: User | None = None) -> CheckedClient:
    """Return a client that speaks JSON, signed in as `user` if there is one; a view's exception becomes a 500."""
    client = CheckedClient(raise_request_exception=False)
    if user is not None:
        client.force_authenticate(user)
    client.default_format = "json"
    return client
