"""`manage.py web`: the pages, the API and the apps of sessions, in one process at one address."""

import asyncio
import contextlib
import socket
from argparse import ArgumentParser
from typing import Any, Final

import uvloop
from django.conf import settings
from django.core.management.base import BaseCommand
from uvicorn import Config, Server

from endpoints import ports
from endpoints.data_plane import data_plane, running
from gpuplatform.bootstrap.address import Address, address_from
from proxy.data_plane import DataPlane
from proxy.dispatch import PlatformOnly, uvicorn_protocol
from proxy.limits import raise_open_file_limit
from proxy.listeners import listening
from sessions.app_addresses import site

MAX_MESSAGE_BYTES: Final = 2**20  # of a websocket message to the platform: ample for what people paste
SHUTDOWN_SECONDS: Final = 5  # after which open websockets are closed


class Command(BaseCommand):
    """Uvicorn with Django, and the fast server for connections to the apps' hosts."""

    help = "Serve the platform, and the apps of sessions below COMPUTE_APPS_DOMAIN, until stopped."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--address", default=settings.COMPUTE_HTTP_ADDRESS, help="host:port to listen on")

    def handle(self, *args: Any, address: str, **options: Any) -> None:
        """Run until SIGTERM or Ctrl-C."""
        raise_open_file_limit()
        uvloop.run(_serve(address_from(address)))


class _Server(Server):
    """Closes idle connections to apps when uvicorn closes its own."""

    def __init__(self, config: Config, plane: DataPlane) -> None:
        super().__init__(config)
        self._plane = plane

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Complete the responses under way; connections left when this returns are aborted."""
        self._plane.shut_down()
        await super().shutdown(sockets)


async def _serve(address: Address) -> None:
    from gpuplatform.asgi import platform

    plane = data_plane()
    config = Config(
        PlatformOnly(site(), platform),
        host=address.host,
        port=address.port,
        http=uvicorn_protocol(plane, site()),
        forwarded_allow_ips=settings.COMPUTE_TRUSTED_PROXIES,
        lifespan="off",
        ws_max_size=MAX_MESSAGE_BYTES,
        ws_per_message_deflate=False,  # would more than double the time of a key's echo in a terminal
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        log_level="warning",
        access_log=False,
    )
    async with running(plane), listening(plane, address.host, ports.held()):
        with contextlib.suppress(asyncio.CancelledError):
            await _Server(config, plane).serve()
