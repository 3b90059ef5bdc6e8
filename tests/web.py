"""Opens pages in tests, as a person or as a stranger."""

from django.test import Client

from accounts.models import User

HTMX = {"HX-Request": "true"}


def browser_of(user: User) -> Client:
    """Return a client with `user` signed in."""
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return client


def text_of(client: Client, path: str, **headers: str) -> str:
    """Return the page at `path`, which must be there."""
    response = client.get(path, headers=headers)
    assert response.status_code == 200, f"{path}: {response.status_code}"
    return response.content.decode()
