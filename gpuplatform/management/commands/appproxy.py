"""`manage.py appproxy`: the apps of sessions in processes of their own, which restarts of the platform do not touch."""

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from gpuplatform.serving.web_server import ServerConfig, listener_at, processes_of, serve
from operations.machine.address import address_from


class Command(BaseCommand):
    """Several may listen at one address, where the kernel distributes connections; each reads all routes."""

    requires_system_checks = ()  # of applications, which are not loaded here
    help = "Serve the apps of sessions below COMPUTE_APPS_DOMAIN until stopped; a reverse proxy routes to it by host."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--address", default="127.0.0.1:8001", help="host:port to listen on")
        parser.add_argument(
            "--drain", type=float, default=0, help="seconds that websockets may go on once it is stopped"
        )
        parser.add_argument(
            "--processes", type=int, default=settings.COMPUTE_WEB_PROCESSES, help="0: one for each core, from 2 to 4"
        )

    def handle(self, *args: Any, address: str, drain: float, processes: int, **options: Any) -> None:
        """Run until SIGTERM or Ctrl-C; SIGHUP restarts one process after another where there are several."""
        where = address_from(address)
        config = ServerConfig(
            "gpuplatform.serving.data_plane.apps",
            processes=processes_of(processes),
            host=where.host,
            drain_seconds=drain,
        )
        serve(config, listener_at(where, is_shared=True))
