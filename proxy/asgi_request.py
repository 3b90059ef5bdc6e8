"""What requests and websockets of the portable carrier have in common: from an ASGI server's event to a seat."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, Protocol, cast

from proxy.admission import Forward
from proxy.answers import Answer
from proxy.handoff import Reserved
from proxy.heads import Request
from proxy.plane import DataPlane, Live, Seat

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Any], Awaitable[None]]  # of messages

AHEAD_BYTES: Final = 256 * 1024  # read from the app before the server has taken them


class Served(Live, Protocol):
    """A request, or a websocket, that has a seat."""

    async def run(self, receive: Receive, send: Send) -> Answer | None:
        """Have the app answer; return what to answer in its place when nothing of it came."""
        ...

    def leave(self) -> None:
        """Give up what has not come to its end."""
        ...


Serve = Callable[[DataPlane, Seat, Forward], Served]


def to_request(scope: Scope) -> Request:
    """Return the head of an ASGI request, its target as the client wrote it."""
    target = cast(bytes, scope.get("raw_path") or scope["path"].encode())
    if scope.get("query_string"):
        target += b"?" + scope["query_string"]
    method = scope.get("method", "GET").encode()
    return Request(method, target, list(scope["headers"]), scope.get("http_version") == "1.0")


async def judged(
    plane: DataPlane, scope: Scope, request: Request, serve: Serve, receive: Receive, send: Send
) -> Answer | None:
    """Have the request judged, and the app answer it if it may; return what to answer in the app's place."""
    judgement = plane.admission.judge(request, scope["client"][0] if scope.get("client") else "")
    if isinstance(judgement, Reserved):
        return await plane.admission.serve(judgement)
    if isinstance(judgement, Answer):
        return judgement
    seat = plane.sit(judgement.visitor, judgement.client)
    if isinstance(seat, Answer):
        return seat
    served = serve(plane, seat, judgement)
    plane.connections.add(served)
    try:
        return await served.run(receive, send)
    finally:
        served.leave()
        plane.connections.discard(served)
        plane.rise(seat)
