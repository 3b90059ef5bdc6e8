"""`manage.py gateway`: lets the web process of another machine reach the sessions of this host."""

import asyncio
import logging
import signal
from typing import Any, Final

import uvloop
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from endpoints.data_plane import gateway_plane, running
from endpoints.feed import HostRoutes
from engine.containers import HOST_LABEL, INSTALLATION_LABEL
from engine.engine import GATEWAY_PREFIX, Engine
from engine.gateway import EngineGateway
from engine.http import HEAD_LIMIT
from hostaccess.keys import gateway_keys
from proxy.client_connection import ClientConnection
from proxy.data_plane import DataPlane
from proxy.dispatch import FirstRequestDispatcher
from proxy.limits import raise_open_file_limit
from resources.models import Installation

logger = logging.getLogger(__name__)

BACKLOG: Final = 100  # connections that the kernel queues until they are accepted


class Command(BaseCommand):
    """Serves signed requests alone, and those only for containers of sessions on this host."""

    help = "Let the web process on another machine reach terminals, logs and apps of this host's sessions."
    requires_system_checks: tuple[str, ...] = ()  # they load all pages: terminals would wait longer for a restart

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until SIGTERM or Ctrl-C."""
        if not settings.COMPUTE_GATEWAY_ADDRESS:
            raise CommandError("COMPUTE_GATEWAY_ADDRESS is not set, so there is nothing to listen on")
        labels = {INSTALLATION_LABEL: Installation.current_key(), HOST_LABEL: settings.COMPUTE_HOST_NAME}
        keys = gateway_keys(settings.COMPUTE_HOST_NAME)
        engine_gateway = EngineGateway(Engine(settings.COMPUTE_DOCKER_URL), keys, settings.COMPUTE_HOST_NAME, labels)
        raise_open_file_limit()
        try:
            uvloop.run(_serve(engine_gateway, gateway_plane(), settings.COMPUTE_GATEWAY_ADDRESS))
        except OSError as error:
            raise CommandError(f"cannot listen on {settings.COMPUTE_GATEWAY_ADDRESS}: {error}") from error


async def _serve(engine_gateway: EngineGateway, plane: DataPlane, address: str) -> None:
    """Serve at `address`, host:port, until a signal; then cut what is open."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)

    def choose(head: bytes) -> asyncio.Protocol:
        if head.partition(b" ")[2].startswith(GATEWAY_PREFIX.encode()):
            return asyncio.StreamReaderProtocol(asyncio.StreamReader(HEAD_LIMIT), engine_gateway.serve)
        return ClientConnection(plane)

    host, _, port = address.rpartition(":")
    async with running(plane, HostRoutes()):
        server = await loop.create_server(
            lambda: FirstRequestDispatcher(plane, choose), host.strip("[]"), int(port), backlog=BACKLOG
        )
        logger.info("gateway of %s: listens on %s", settings.COMPUTE_HOST_NAME, address)
        try:
            await stopped.wait()
        finally:
            server.close()
            await engine_gateway.close()
