"""What requests and websockets have in common in the ASGI server: from the event of a request to a connection slot."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, Protocol, cast

from proxy.authorization.authorizer import ForwardDecision
from proxy.data_plane import ConnectionSlot, DataPlane, ManagedConnection
from proxy.http.headers import RequestHead
from proxy.http.responses import LocalResponse

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Any], Awaitable[None]]  # of messages

MAX_BUFFERED_BYTES: Final = 256 * 1024  # read from the app and not yet taken by the server


class AsgiHandler(ManagedConnection, Protocol):
    """A request or a websocket that holds a slot."""

    async def run(self, receive: Receive, send: Send) -> LocalResponse | None:
        """Forward the request and send the response; return one of ours if the app sent none."""
        ...

    def close(self) -> None:
        """Close the upstream connection if it is still open."""
        ...


HandlerFactory = Callable[[DataPlane, ConnectionSlot, ForwardDecision], AsgiHandler]


def to_request(scope: Scope) -> RequestHead:
    """Return the head of an ASGI request, its target as the client wrote it."""
    target = cast(bytes, scope.get("raw_path") or scope["path"].encode())
    if scope.get("query_string"):
        target += b"?" + scope["query_string"]
    method = scope.get("method", "GET").encode()
    return RequestHead(method, target, list(scope["headers"]), scope.get("http_version") == "1.0")


async def authorize_and_run(
    plane: DataPlane, scope: Scope, request: RequestHead, make_handler: HandlerFactory, receive: Receive, send: Send
) -> LocalResponse | None:
    """Decide about the request and have a handler forward it; return the response if the app sends none."""
    decision = plane.authorizer.authorize(request, scope["client"][0] if scope.get("client") else "")
    if isinstance(decision, LocalResponse):
        return decision
    if not isinstance(decision, ForwardDecision):
        return await plane.authorizer.serve(decision)
    slot = plane.acquire_slot(decision.principal, decision.client)
    if isinstance(slot, LocalResponse):
        return slot
    slot.is_busy = slot.pool.is_used = True
    handler = make_handler(plane, slot, decision)
    plane.connections.add(handler)
    try:
        return await handler.run(receive, send)
    finally:
        handler.close()
        plane.connections.discard(handler)
        plane.release_slot(slot)
