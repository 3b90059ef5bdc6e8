"""One request of a client and its response: from the decision about it to the last byte of the response."""

import asyncio
from collections.abc import Sequence
from enum import Enum
from typing import Final, Protocol

from proxy.authorization.decisions import ForwardDecision, UpstreamFailure
from proxy.data_plane import Authorizer, ConnectionSlot
from proxy.http.headers import UPGRADE_HEADERS, Header, RequestHead, header_line
from proxy.http.response_parser import BODY_UNTIL_CLOSE, CHUNKED_BODY, SWITCHING_PROTOCOLS, ResponseHead
from proxy.http.responses import LocalResponse
from proxy.limits import ProxyLimits
from proxy.listener.connecting import connect, serve
from proxy.listener.service_turn import ServiceTurn
from proxy.upstream.connection import UpstreamConnection

UPGRADE_LINES: Final = [b"%b: %b" % header for header in UPGRADE_HEADERS]
OK: Final = 200
OK_LINE: Final = b"HTTP/1.1 200 OK"
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK: Final = b"0\r\n\r\n"
MAX_JOINED_BYTES: Final = 64 * 1024  # up to which a head and the body behind it are joined into one write
FOREVER: Final = float("inf")


class RequestState(Enum):
    """How far a request has come."""

    RECEIVING = "receiving"
    RECEIVED = "received"
    SENT = "sent"  # to the upstream, completely


# Python looks up a name of a module ten times as fast as a member of an enum.
RECEIVING, RECEIVED, SENT = RequestState


class ExchangeClient(Protocol):
    """The client connection of an exchange."""

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    deadline: float  # loop time
    authorizer: Authorizer
    limits: ProxyLimits
    peer: str  # IP address
    listen_port: int | None
    is_paused: bool  # the client does not read what is written to it
    is_reading: bool  # of the client's transport
    is_upstream_paused: bool
    slot: ConnectionSlot | None

    def acquire_slot(self, forward: ForwardDecision) -> ConnectionSlot | LocalResponse:
        """Return the slot by which the request may be forwarded, or the response that refuses it."""
        ...

    def is_last(self, exchange: "Exchange") -> bool:
        """Return whether the connection must end after a response that starts now."""
        ...

    def finish(self, exchange: "Exchange", *, closes: bool) -> None:
        """Go on to the next request, or close the connection."""
        ...

    def start_tunnel(self, upstream: UpstreamConnection) -> None:
        """Connect the client with an upstream that has switched protocols."""
        ...

    def update_reading(self) -> None:
        """Pause or resume reading from the client."""
        ...


class Exchange:
    """A request that is received, forwarded and answered; handles the response of its upstream connection."""

    __slots__ = (
        "_client",
        "added_headers",
        "body",
        "forward",
        "is_response_started",
        "is_reused",
        "keeps_alive",
        "request",
        "request_state",
        "task",
        "turn",
        "upstream",
    )

    def __init__(self, client: ExchangeClient, request: RequestHead, *, keeps_alive: bool) -> None:
        self._client = client
        self.request = request
        self.request_state = RECEIVING
        self.keeps_alive = keeps_alive  # the connection persists after the response
        self.is_response_started = False
        self.is_reused = False  # the upstream connection was idle, and may have ended unnoticed
        self.body: list[bytes] = []  # received and not yet sent
        self.forward: ForwardDecision | None = None
        self.turn: ServiceTurn | None = None  # at one of a service's replicas
        self.added_headers: tuple[Header, ...] = ()  # to those of the response
        self.upstream: UpstreamConnection | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def is_received(self) -> bool:
        """Whether the request has come completely."""
        return self.request_state is not RECEIVING

    @property
    def may_wait(self) -> bool:
        """Whether more of the body may come before it is sent: a little of that of a request that waits in line.

        The end of a connection is noticed only while it is read.
        """
        return self.turn is not None and sum(map(len, self.body)) < MAX_JOINED_BYTES

    def advance(self) -> None:
        """Start, or send what has come of the body since.

        None starts while the client does not read, or its responses would pile up here.
        """
        if self.forward is None and self.task is None:
            if not self._client.is_paused:
                self._start()
        elif self.upstream and self.request_state is not SENT:
            is_complete = self.request_state is RECEIVED
            self.upstream.write(self._take_body(), is_complete=is_complete)
            if is_complete:
                self.request_state = SENT
            self._start_response_timeout()

    def respond(self, response: LocalResponse) -> None:
        """Answer without the app."""
        client = self._client
        closes = response.closes or client.is_last(self)
        if self.forward and self.forward.cors:
            response = response.with_headers(self.forward.cors)
        client.transport.write(response.to_bytes(with_body=self.request.method != b"HEAD", closes=closes))
        client.finish(self, closes=closes)

    def time_out(self) -> None:
        """Answer that the app has not responded in time, or at a service that the request has not come."""
        if self.turn:
            self.turn.time_out()
        else:
            self.respond(self._client.authorizer.failed(UpstreamFailure.SILENT))

    def cancel(self) -> None:
        """Abandon the upstream connection, any task and the place at a replica."""
        if self.upstream:
            self.upstream.abort()
            self.upstream = None
        if self.task:
            self.task.cancel()
            self.task = None
        if self.turn:
            self.turn.leave()
            self.turn = None  # which refers to this: the collector would have to find the two

    # --- the request

    def _start(self) -> None:
        client = self._client
        decision = client.authorizer.authorize(self.request, client.peer, client.listen_port)
        if isinstance(decision, ForwardDecision):
            self._forward(decision)
        elif isinstance(decision, LocalResponse):
            self.respond(decision)
        else:
            self.task = client.loop.create_task(serve(self, client.authorizer, decision))

    def _forward(self, forward: ForwardDecision) -> None:
        self.forward = forward
        slot = self._client.acquire_slot(forward)
        if isinstance(slot, LocalResponse):
            self.respond(slot)
            return
        if slot.balancer:
            self.turn = ServiceTurn(self, self._client, forward, slot, slot.balancer)
            slot.balancer.enter(self.turn)
            return
        loop, pool = self._client.loop, slot.pool
        assert pool
        upstream = pool.take_idle(loop.time())
        if upstream:
            self.is_reused = True
            self.send(forward, upstream)
        else:
            self.task = loop.create_task(connect(self, self._client, forward, pool))

    def send(self, forward: ForwardDecision, upstream: UpstreamConnection) -> None:
        """Send the request, with what has come of its body, over this connection."""
        client, turn = self._client, self.turn
        self.upstream = upstream
        data = forward.to_bytes(turn.prepare() if turn else ())
        if forward.length != 0:
            data += self._take_body()
        is_complete = self.request_state is not RECEIVING
        if is_complete:
            self.request_state = SENT
        is_head, may_upgrade = forward.method == b"HEAD", forward.is_websocket
        upstream.send(turn or self, data, is_head=is_head, may_upgrade=may_upgrade, is_complete=is_complete)
        self._start_response_timeout()
        if client.is_paused:
            upstream.pause_reading()
        if forward.expects_continue and not is_complete:
            client.transport.write(CONTINUE)

    def _take_body(self) -> bytes:
        """Return what of the body is to be sent now."""
        body, self.body = self.body, []
        is_chunked = self.forward is not None and self.forward.length is None
        return chunked(body, is_last=self.request_state is not RECEIVING) if is_chunked else b"".join(body)

    def _start_response_timeout(self) -> None:
        client = self._client
        if self.is_response_started:
            return
        if self.request_state is SENT:
            client.deadline = client.loop.time() + client.limits.response_seconds
        elif self.turn:  # or a client that stops in the middle would take the replica from others
            client.deadline = client.loop.time() + client.limits.body_seconds

    # --- the response

    def response_started(self, head: ResponseHead, first: bytes) -> None:
        """Send the head to the client, with what of the body came along."""
        client, forward = self._client, self.forward
        assert forward
        self.keeps_alive = not (head.framing is BODY_UNTIL_CLOSE or client.is_last(self))
        self.is_response_started = True
        client.deadline = FOREVER
        headers = client.authorizer.response_headers(forward.principal, head.headers)
        if forward.cors or self.added_headers:
            headers = [*headers, *forward.cors, *self.added_headers]
        data = response_head_bytes(head, headers, closes=not self.keeps_alive)
        if len(first) <= MAX_JOINED_BYTES:
            client.transport.write(data + first)
        else:
            client.transport.write(data)
            client.transport.write(first)

    def response_body(self, data: bytes) -> None:
        """Send more of the body to the client."""
        self._client.transport.write(data)

    def response_ended(self) -> None:
        """Finish; the upstream connection is released already."""
        self.upstream = None
        self._client.finish(self, closes=not self.keeps_alive)

    def response_upgraded(self, head: ResponseHead, first: bytes) -> None:
        """Send the response, and leave both connections to a tunnel."""
        client, forward, upstream = self._client, self.forward, self.upstream
        assert forward
        assert upstream
        headers = [*client.authorizer.response_headers(forward.principal, head.headers), *self.added_headers]
        client.transport.write(response_head_bytes(head, headers, closes=False) + first)
        client.start_tunnel(upstream)

    def upstream_lost(self, *, is_malformed: bool) -> None:
        """Retry if an idle connection had ended unnoticed (RFC 9112, 9.3.1), else respond that the app failed.

        A response that has started is left incomplete, which the client learns by the end of its connection.
        """
        self.upstream = None
        client, forward, slot = self._client, self.forward, self._client.slot
        if self.is_response_started:
            client.transport.abort()
        elif self.is_reused and not is_malformed and forward and slot and slot.pool and forward.is_repeatable:
            self.is_reused = False
            self.task = client.loop.create_task(connect(self, client, forward, slot.pool))
        else:
            failure = UpstreamFailure.MALFORMED if is_malformed else UpstreamFailure.LOST
            self.respond(client.authorizer.failed(failure))

    def upstream_paused(self) -> None:
        """Pause the client: the app reads more slowly than it sends."""
        self._client.is_upstream_paused = True
        if self.turn and not self.is_received:
            self._client.deadline = FOREVER
        self._client.update_reading()

    def upstream_resumed(self) -> None:
        """Resume the client."""
        self._client.is_upstream_paused = False
        if self.turn and not self.is_received:
            self._start_response_timeout()
        self._client.update_reading()


def chunked(parts: Sequence[bytes], *, is_last: bool) -> bytes:
    """Return parts of a body as chunks (RFC 9112, 7.1), with the end of the body if they are the last."""
    chunks = [b"%x\r\n%b\r\n" % (len(part), part) for part in parts]
    return b"".join([*chunks, LAST_CHUNK] if is_last else chunks)


def response_head_bytes(head: ResponseHead, headers: list[Header], *, closes: bool) -> bytes:
    """Return the status line and header section of an app's response, with those headers that concern one hop."""
    is_ok = head.status == OK and head.reason == b"OK"  # formatting takes time
    lines = [OK_LINE if is_ok else b"HTTP/1.1 %d %b" % (head.status, head.reason), *map(header_line, headers)]
    if head.framing is CHUNKED_BODY:
        lines.append(b"Transfer-Encoding: chunked")
    if head.status == SWITCHING_PROTOCOLS:
        lines += UPGRADE_LINES
    elif closes:
        lines.append(b"Connection: close")
    lines.append(b"\r\n")
    return b"\r\n".join(lines)
