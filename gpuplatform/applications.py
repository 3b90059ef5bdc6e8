"""What a web process serves, for uvicorn: the application and the protocol of connections."""

from typing import Final

from django.conf import settings
from django.template.loader import get_template

from endpoints.data_plane import data_plane
from gpuplatform.asgi import platform_with
from gpuplatform.serving.data_plane import Lifespan, Served, apps_served, require_valid_settings
from proxy.counters import ConnectionCounters
from proxy.listener.dispatch import PlatformOnly, app_hosts, uvicorn_protocol
from sessions.access.app_addresses import site

TEMPLATES: Final = (".html", ".txt")  # suffixes; an editor's own files are left alone
DRAIN_SECONDS: Final = 1.0  # for which apps' connections go on at the end


def platform_and_apps(counters: ConnectionCounters | None, host: str) -> Served:
    """Return what `manage.py web` serves: uvicorn's own connections for the platform, the app proxy's for apps.

    `host` is where the ports of apps are opened.
    """
    require_valid_settings()  # which loads all views
    load_templates()
    plane = data_plane(counters=counters)
    is_app_host = app_hosts(site(), plane.authorizer.table)
    platform = PlatformOnly(is_app_host, platform_with(plane.counters))
    return Lifespan(apps_served(plane, host, DRAIN_SECONDS), platform), uvicorn_protocol(plane, is_app_host)


def load_templates() -> None:
    """Load the pages' templates: an upgrade replaces the files, while this process renders pages with its own code."""
    folder = settings.BASE_DIR / "templates"
    for path in folder.rglob("[!.]*"):
        if path.suffix in TEMPLATES:
            get_template(str(path.relative_to(folder)))
