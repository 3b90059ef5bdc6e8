"""`manage.py web`: the pages, the API and the apps of sessions, at one address."""

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from gpuplatform.serving.web_server import ServerConfig, listener_at, processes_of, serve
from operations.machine.address import address_from


class Command(BaseCommand):
    """Uvicorn with Django, and the app proxy for connections to the apps' hosts."""

    requires_system_checks = ()  # of applications, which are not loaded here
    help = "Serve the platform, and the apps of sessions below COMPUTE_APPS_DOMAIN, until stopped."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--address", default=settings.COMPUTE_HTTP_ADDRESS, help="host:port to listen on")
        parser.add_argument(
            "--processes", type=int, default=settings.COMPUTE_WEB_PROCESSES, help="0: one for each core, from 2 to 4"
        )

    def handle(self, *args: Any, address: str, processes: int, **options: Any) -> None:
        """Run until SIGTERM or Ctrl-C; SIGHUP restarts one process after another where there are several."""
        where = address_from(address)
        config = ServerConfig(
            "gpuplatform.applications.platform_and_apps",
            processes=processes_of(processes),
            trusted_proxies=settings.COMPUTE_TRUSTED_PROXIES,
            has_metrics=True,
            host=where.host,
        )
        serve(config, listener_at(where))
