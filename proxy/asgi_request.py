"""What requests and websockets of the portable carrier have in common: from an ASGI server's event to a seat."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, Protocol, cast

from proxy.authorization import ForwardDecision
from proxy.data_plane import ConnectionSlot, DataPlane, ManagedConnection
from proxy.headers import RequestHead
from proxy.login_flow import ReservedRequest
from proxy.responses import LocalResponse

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Any], Awaitable[None]]  # of messages

AHEAD_BYTES: Final = 256 * 1024  # read from the app before the server has taken them


class AsgiHandler(ManagedConnection, Protocol):
    """A request, or a websocket, that has a seat."""

    async def run(self, receive: Receive, send: Send) -> LocalResponse | None:
        """Have the app answer; return what to answer in its place when nothing of it came."""
        ...

    def leave(self) -> None:
        """Give up what has not come to its end."""
        ...


Serve = Callable[[DataPlane, ConnectionSlot, ForwardDecision], AsgiHandler]


def to_request(scope: Scope) -> RequestHead:
    """Return the head of an ASGI request, its target as the client wrote it."""
    target = cast(bytes, scope.get("raw_path") or scope["path"].encode())
    if scope.get("query_string"):
        target += b"?" + scope["query_string"]
    method = scope.get("method", "GET").encode()
    return RequestHead(method, target, list(scope["headers"]), scope.get("http_version") == "1.0")


async def authorize_and_run(
    plane: DataPlane, scope: Scope, request: RequestHead, serve: Serve, receive: Receive, send: Send
) -> LocalResponse | None:
    """Have the request judged, and the app answer it if it may; return what to answer in the app's place."""
    decision = plane.authorizer.authorize(request, scope["client"][0] if scope.get("client") else "")
    if isinstance(decision, ReservedRequest):
        return await plane.authorizer.serve(decision)
    if isinstance(decision, LocalResponse):
        return decision
    slot = plane.acquire_slot(decision.principal, decision.client)
    if isinstance(slot, LocalResponse):
        return slot
    served = serve(plane, slot, decision)
    plane.connections.add(served)
    try:
        return await served.run(receive, send)
    finally:
        served.leave()
        plane.connections.discard(served)
        plane.release_slot(slot)
