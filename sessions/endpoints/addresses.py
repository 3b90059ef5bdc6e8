"""Where endpoints are reached. Every app has an origin of its own, so that none can script another or the platform."""

from urllib.parse import urlsplit

from django.conf import settings
from django.urls import reverse

from sessions.models import Endpoint


def origin(label: str) -> str:
    """Return scheme, host and port of the endpoint with this label."""
    return _origin(f"{label}.{settings.COMPUTE_APPS_DOMAIN}", urlsplit(settings.COMPUTE_PUBLIC_URL).port)


def port_origin(port: int) -> str:
    """Return scheme, host and port of the endpoint that has this port to itself."""
    return _origin(f"ports.{settings.COMPUTE_APPS_DOMAIN}", port)


def url(endpoint: Endpoint) -> str:
    """Return the address of the endpoint's first page."""
    return f"{origin(endpoint.label)}/"


def launch_path(endpoint: Endpoint) -> str:
    """Return the path of the platform's page that starts the app and shows how far it is."""
    return f"{reverse('sessions:detail', args=[endpoint.session_id])}apps/{endpoint.app}/"


def _origin(host: str, port: int | None) -> str:
    scheme = urlsplit(settings.COMPUTE_PUBLIC_URL).scheme
    return f"{scheme}://{host}:{port}" if port else f"{scheme}://{host}"
