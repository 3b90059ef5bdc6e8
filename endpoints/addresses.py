"""Where endpoints are reached. Every app has an origin of its own, so that none can script another or the platform."""

from django.conf import settings
from django.urls import reverse

from proxy.site import Site
from sessions.models import Endpoint


def site() -> Site:
    """Return the names of this platform."""
    return Site(platform_url=settings.COMPUTE_PUBLIC_URL.rstrip("/"), apps_domain=settings.COMPUTE_APPS_DOMAIN)


def origin(endpoint: Endpoint) -> str:
    """Return scheme, host and port of the endpoint; "" where it needs a port of its own and has none."""
    names = site()
    if not names.is_by_port:
        return names.origin(endpoint.label)
    return names.origin(endpoint.label, endpoint.listen_port) if endpoint.listen_port else ""


def first_page(endpoint: Endpoint) -> str:
    """Return the address at which the app begins; "" where it has none."""
    where = origin(endpoint)
    return where + _start_path(endpoint) if where else ""


def first_page_at_port(endpoint: Endpoint) -> str:
    """Return the address at which the app begins at the port that it has to itself; "" where it has none."""
    port = endpoint.listen_port
    return site().origin(endpoint.label, port) + _start_path(endpoint) if port else ""


def launch_path(endpoint: Endpoint) -> str:
    """Return the path of the platform's page that starts the app and shows how far it is."""
    return reverse("sessions:app", args=[endpoint.session_id, endpoint.app])


def share_url(secret: str) -> str:
    """Return the address that a share link consists of."""
    return site().platform_url + reverse("endpoints:shared", args=[secret])


def _start_path(endpoint: Endpoint) -> str:
    app = next((app for app in endpoint.session.image.apps.all() if app.name == endpoint.app), None)
    return app.start_path if app else "/"
