"""What a web process serves, for uvicorn: the application and the protocol of connections."""

import sys
from typing import Final

from django.core.management.base import BaseCommand, SystemCheckError
from uvicorn.config import STARTUP_FAILURE

from endpoints.data_plane import data_plane
from gpuplatform.asgi import platform_with
from gpuplatform.serving.data_plane import Lifespan, Served, apps_served
from proxy.counters import ConnectionCounters
from proxy.listener.dispatch import PlatformOnly, app_hosts, uvicorn_protocol
from sessions.access.app_addresses import site

DRAIN_SECONDS: Final = 1.0  # for which apps' connections go on at the end


def platform_and_apps(counters: ConnectionCounters | None, host: str) -> Served:
    """Return what `manage.py web` serves: uvicorn's own connections for the platform, the app proxy's for apps.

    `host` is where the ports of apps are opened.
    """
    _require_valid_settings()
    plane = data_plane(counters=counters)
    is_app_host = app_hosts(site(), plane.authorizer.table)
    platform = PlatformOnly(is_app_host, platform_with(plane.counters))
    return Lifespan(apps_served(plane, host, DRAIN_SECONDS), platform), uvicorn_protocol(plane, is_app_host)


def _require_valid_settings() -> None:
    """End this process, and by the status its parent, where a system check fails; this loads all pages."""
    try:
        BaseCommand().check()
    except SystemCheckError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(STARTUP_FAILURE)
