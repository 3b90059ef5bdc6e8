"""What an exchange awaits in a task of its own: a new connection to its app, or a response that needs I/O."""

import asyncio
from typing import Protocol

from proxy.authorization.decisions import Deferred, ForwardDecision
from proxy.data_plane import Authorizer
from proxy.http import responses
from proxy.http.headers import RequestHead
from proxy.http.responses import LocalResponse
from proxy.upstream.connection import UpstreamConnection
from proxy.upstream.pool import UpstreamPool


class AwaitingExchange(Protocol):
    """The exchange that awaits it."""

    request: RequestHead
    task: asyncio.Task[None] | None

    def respond(self, response: LocalResponse) -> None:
        """Answer without the app."""
        ...

    def send(self, forward: ForwardDecision, upstream: UpstreamConnection) -> None:
        """Send the request over this connection."""
        ...


class AwaitingClient(Protocol):
    """The client connection of the exchange."""

    authorizer: Authorizer

    def update_reading(self) -> None:
        """Pause or resume reading from the client."""
        ...


async def connect(
    exchange: AwaitingExchange, client: AwaitingClient, forward: ForwardDecision, pool: UpstreamPool
) -> None:
    """Send the request over a new connection, or respond that the app cannot be reached."""
    try:
        upstream = await pool.connect()
    except OSError as error:
        exchange.task = None
        is_silent = isinstance(error, TimeoutError)
        exchange.respond(client.authorizer.unreachable(exchange.request, forward.principal, is_silent=is_silent))
    else:
        exchange.task = None
        exchange.send(forward, upstream)
        client.update_reading()


async def serve(exchange: AwaitingExchange, authorizer: Authorizer, deferred: Deferred) -> None:
    """Respond at a reserved path, or for an app that this process does not know yet."""
    try:
        response = await authorizer.serve(deferred)
    except Exception:
        exchange.task = None
        exchange.respond(responses.INTERNAL_ERROR)
        raise
    exchange.task = None
    exchange.respond(response)
