"""`manage.py appproxy`: the apps of sessions in a process of their own, which restarts of the platform do not touch."""

import asyncio
import logging
import signal
from argparse import ArgumentParser
from typing import Any, Final

import uvloop
from django.core.management.base import BaseCommand, CommandError

from endpoints import ports
from endpoints.data_plane import data_plane, running
from gpuplatform.bootstrap.address import Address, address_from
from proxy.client_connection import ClientConnection
from proxy.limits import raise_open_file_limit
from proxy.listeners import listening

logger = logging.getLogger(__name__)

BACKLOG: Final = 1024  # connections that the kernel queues until they are accepted
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Command(BaseCommand):
    """Several may listen at one address, where the kernel distributes connections; each reads all routes."""

    help = "Serve the apps of sessions below COMPUTE_APPS_DOMAIN until stopped; a reverse proxy routes to it by host."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--address", default="127.0.0.1:8001", help="host:port to listen on")
        parser.add_argument(
            "--drain", type=float, default=0, help="seconds that websockets may go on once it is stopped"
        )

    def handle(self, *args: Any, address: str, drain: float, **options: Any) -> None:
        """Run until SIGTERM or Ctrl-C."""
        raise_open_file_limit()
        try:
            uvloop.run(_serve(address_from(address), drain))
        except OSError as error:
            raise CommandError(f"cannot listen on {address}: {error}") from error


async def _serve(address: Address, drain: float) -> None:
    """Serve until a signal; then return when all connections are closed, or after `drain` seconds."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stopped.set)
    plane = data_plane()
    async with running(plane):
        async with listening(plane, address.host, ports.held()):
            server = await loop.create_server(
                lambda: ClientConnection(plane), address.host, address.port, reuse_port=True, backlog=BACKLOG
            )
            logger.info("serves the apps of sessions on %s", address.text)
            await stopped.wait()
            server.close()
        await plane.drain(drain)
