"""The addresses of apps. Every app has an origin of its own, so that none can script another or the platform."""

from django.conf import settings

from proxy.site import Site
from sessions.models import Endpoint


def site() -> Site:
    """Return the names of this platform, from the settings."""
    return Site(platform_url=settings.COMPUTE_PUBLIC_URL.rstrip("/"), apps_domain=settings.COMPUTE_APPS_DOMAIN)


def origin(endpoint: Endpoint) -> str:
    """Return scheme, host and port of the endpoint; "" where it needs a port of its own and has none."""
    names = site()
    if not names.is_by_port:
        return names.origin(endpoint.label)
    return names.origin(endpoint.label, endpoint.listen_port) if endpoint.listen_port else ""


def first_page(endpoint: Endpoint) -> str:
    """Return the URL of the app's first page; "" where the endpoint has no origin."""
    base = origin(endpoint)
    return base + _start_path(endpoint) if base else ""


def first_page_at_port(endpoint: Endpoint) -> str:
    """Return the URL of the app's first page at the port that is the endpoint's own; "" where it has none."""
    port = endpoint.listen_port
    return site().origin(endpoint.label, port) + _start_path(endpoint) if port else ""


def _start_path(endpoint: Endpoint) -> str:
    app = next((app for app in endpoint.session.image.apps.all() if app.name == endpoint.app), None)
    return app.start_path if app else "/"
