"""The addresses of the platform's own pages about apps."""

from django.urls import reverse

from sessions.access.app_addresses import site
from sessions.models import Endpoint


def launch_path(endpoint: Endpoint) -> str:
    """Return the path of the page that starts the app and shows its progress."""
    return reverse("endpoints:app", args=[endpoint.session_id, endpoint.app])


def share_url(secret: str) -> str:
    """Return the URL that a share link consists of."""
    return site().platform_url + reverse("endpoints:shared", args=[secret])
