"""A request at a service: it gets a replica or waits for one, is sent there, and is counted there until it has ended.

It is sent a second time, to another replica, if the first had received nothing of it, or may have begun with what is
safe to repeat; never once a byte of a response has come.
"""

import asyncio
from typing import Final, Protocol

from proxy.authorization.decisions import ForwardDecision, ServicePrincipal, UpstreamFailure
from proxy.authorization.gateway import failure_of
from proxy.authorization.request_checks import is_navigation
from proxy.balancing.balancer import Balancer
from proxy.balancing.refusals import RETRY_SECONDS, Refusal, refusal
from proxy.balancing.replicas import BalancedReplica
from proxy.balancing.response_usage import UsageReader, usage_reader
from proxy.budgets import NOTHING_USED
from proxy.data_plane import ConnectionSlot
from proxy.http import responses
from proxy.http.headers import Header, RequestHead, classify
from proxy.http.response_parser import ResponseHead
from proxy.http.responses import LocalResponse
from proxy.upstream.connection import UpstreamConnection
from proxy.upstream.pool import UpstreamPool

MAX_REPEATED_BYTES: Final = 64 * 1024  # of a body that is kept until a response comes, to be sent again
SERVER_ERROR: Final = 500  # and above
FOREVER: Final = float("inf")


class TurnClient(Protocol):
    """The client connection of a turn."""

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    deadline: float  # loop time
    is_reading: bool

    def update_reading(self) -> None:
        """Pause or resume reading from the client."""
        ...


class TurnExchange(Protocol):
    """The exchange of a turn, which receives the response."""

    request: RequestHead
    body: list[bytes]
    is_response_started: bool
    added_headers: tuple[Header, ...]
    upstream: UpstreamConnection | None
    task: asyncio.Task[None] | None

    @property
    def is_received(self) -> bool:
        """Whether the request has come completely."""
        ...

    def send(self, forward: ForwardDecision, upstream: UpstreamConnection) -> None:
        """Send the request over this connection."""
        ...

    def respond(self, response: LocalResponse) -> None:
        """Answer without the app."""
        ...

    def response_started(self, head: ResponseHead, first: bytes) -> None:
        """See `ResponseHandler`."""
        ...

    def response_body(self, data: bytes) -> None:
        """See `ResponseHandler`."""
        ...

    def response_ended(self) -> None:
        """See `ResponseHandler`."""
        ...

    def response_upgraded(self, head: ResponseHead, first: bytes) -> None:
        """See `ResponseHandler`."""
        ...

    def upstream_lost(self, *, is_malformed: bool) -> None:
        """See `ResponseHandler`."""
        ...

    def upstream_paused(self) -> None:
        """See `ResponseHandler`."""
        ...

    def upstream_resumed(self) -> None:
        """See `ResponseHandler`."""
        ...


class ServiceTurn:
    """Handles the response of a replica in front of the exchange; a balancer has it begin or refuses it."""

    __slots__ = (
        "_balancer",
        "_client",
        "_entered_at",
        "_exchange",
        "_failure",
        "_forward",
        "_is_reused",
        "_is_sent",
        "_kept",
        "_needs_connection",
        "_replica",
        "_sent_bytes",
        "_slot",
        "_usage",
        "_was_repeated",
        "is_error",
        "principal",
        "sticky_key",
        "tried",
        "waits_until",
    )

    def __init__(
        self,
        exchange: TurnExchange,
        client: TurnClient,
        forward: ForwardDecision,
        slot: ConnectionSlot,
        balancer: Balancer,
    ) -> None:
        assert isinstance(forward.principal, ServicePrincipal)
        self.principal = forward.principal
        self.sticky_key = forward.sticky_key
        self.tried: BalancedReplica | None = None
        self.waits_until = 0.0  # loop time, 0 if it does not wait
        self.is_error = False  # of the replica
        self._exchange = exchange
        self._client = client
        self._forward = forward
        self._slot = slot
        self._balancer = balancer
        self._replica: BalancedReplica | None = None  # where it is counted
        self._entered_at = client.loop.time()
        self._is_reused = False  # the connection was idle, and may have ended unnoticed
        self._needs_connection = False  # that is new
        self._is_sent = self._was_repeated = False
        self._kept: list[bytes] | None = None  # the body, complete
        self._failure: UpstreamFailure | None = None  # of the gateway that responds in the replica's place
        self._sent_bytes = 0
        self._usage: UsageReader | None = None

    # --- for the balancer

    @property
    def is_navigation(self) -> bool:
        """Whether a browser is to show the response."""
        request = self._exchange.request
        return is_navigation(request, classify(request.headers).known)

    def begin(self, replica: BalancedReplica) -> None:
        """Send the request to this replica, at which it is counted already."""
        client = self._client
        if client.transport.is_closing():  # its access has ended; `leave` will be called
            self._balancer.leave(replica)
            return
        self._replica = replica
        client.deadline = FOREVER
        pool = self._slot.pool = self._balancer.pool(replica)
        pool.is_used = True
        upstream = None if self._needs_connection else pool.take_idle(client.loop.time())
        if upstream:
            self._is_reused = True
            self._exchange.send(self._forward, upstream)
            if not client.is_reading:
                client.update_reading()
        else:
            self._is_reused = False
            self._exchange.task = client.loop.create_task(self._connect(pool, replica))

    def refuse(self, why: Refusal, retry_seconds: int = RETRY_SECONDS) -> None:
        """Answer it without a replica."""
        self._balancer.reject(self, why)
        self._exchange.respond(refusal(why, self._exchange.request, self.principal, retry_seconds))

    # --- for the exchange

    def prepare(self) -> tuple[Header, ...]:
        """Return the headers for the way to the replica, as the request is being sent; keep a short body."""
        self._is_sent = True
        exchange, replica = self._exchange, self._replica
        body = exchange.body
        if exchange.is_received and (not body or sum(map(len, body)) <= MAX_REPEATED_BYTES):
            self._kept = body
        return self._balancer.way_headers(replica) if replica and replica.route.gateway else ()

    def time_out(self) -> None:
        """Answer that the replica has not responded in time, or that the request has not come."""
        if self._exchange.is_received:
            self._say(UpstreamFailure.SILENT)
        else:
            self._exchange.respond(responses.REQUEST_TIMEOUT)

    def leave(self) -> None:
        """Give up the place in the line or at the replica; no-op if there is none."""
        if self.waits_until:
            self._balancer.stop_waiting(self)
        if self._replica:
            self._end(is_error=self.is_error)

    # --- the response

    def response_started(self, head: ResponseHead, first: bytes) -> None:
        """Pass the head on, with a cookie that names the replica where the service wants that."""
        replica = self._replica
        assert replica
        if replica.route.gateway and (failure := failure_of(head.headers)):
            self._failure = failure
            return
        self.is_error = head.status >= SERVER_ERROR
        self._sent_bytes = len(first)
        self._usage = usage_reader(head)
        if self._usage:
            self._usage.feed(first)
        if self.principal.replica_cookie:
            self._name_replica(replica)
        self._exchange.response_started(head, first)

    def response_body(self, data: bytes) -> None:
        """Pass a part of the body on."""
        if not self._failure:
            self._sent_bytes += len(data)
            if self._usage:
                self._usage.feed(data)
            self._exchange.response_body(data)

    def response_ended(self) -> None:
        """Finish, or handle what the gateway said of the replica."""
        failure = self._failure
        if failure is None:
            self._exchange.response_ended()
            return
        self._exchange.upstream = None
        if failure in (UpstreamFailure.UNSENT, UpstreamFailure.LOST):
            self._fail(is_unsent=failure is UpstreamFailure.UNSENT)
        else:
            self._say(failure)

    def response_upgraded(self, head: ResponseHead, first: bytes) -> None:
        """Count the websocket at the replica until its end."""
        if self._replica:
            self._name_replica(self._replica)
        self._slot.turn = self
        self._exchange.response_upgraded(head, first)

    def upstream_lost(self, *, is_malformed: bool) -> None:
        """Send the request again if it may be, else respond that the replica has ended."""
        exchange = self._exchange
        exchange.upstream = None
        if exchange.is_response_started:
            self.is_error = True
            exchange.upstream_lost(is_malformed=is_malformed)
        elif is_malformed:
            self._say(UpstreamFailure.MALFORMED)
        elif self._is_reused and self._forward.is_repeatable:
            self._needs_connection = True
            self._leave_replica()
            self._balancer.enter_again(self, Refusal.ENDED)
        else:
            self._fail(is_unsent=False)

    def upstream_paused(self) -> None:
        """Pause the client."""
        self._exchange.upstream_paused()

    def upstream_resumed(self) -> None:
        """Resume the client."""
        self._exchange.upstream_resumed()

    # --- inside

    async def _connect(self, pool: UpstreamPool, replica: BalancedReplica) -> None:
        try:
            upstream = await pool.connect()
        except OSError:
            self._exchange.task = None
            self._balancer.avoid(replica)
            self._fail(is_unsent=True)
        else:
            self._exchange.task = None
            self._exchange.send(self._forward, upstream)
            self._client.update_reading()

    def _say(self, failure: UpstreamFailure) -> None:
        """Answer that the replica has sent no HTTP, or nothing in time: it may have begun, and is not asked again."""
        self.is_error = True
        why = Refusal.SILENT if failure is UpstreamFailure.SILENT else Refusal.MALFORMED
        self._exchange.respond(refusal(why, self._exchange.request, self.principal))

    def _fail(self, *, is_unsent: bool) -> None:
        """Go to another replica, once, if that repeats nothing that might do harm; else say what has happened."""
        is_complete = self._kept is not None or not self._is_sent
        may_repeat = not self._was_repeated and (self._forward.is_repeatable or (is_unsent and is_complete))
        why = Refusal.UNREACHABLE if is_unsent else Refusal.ENDED
        self.tried, self._failure = self._replica, None
        self._end(is_error=True)
        if not may_repeat:
            self.refuse(why)
            return
        self._was_repeated = True
        if self._kept is not None:
            self._exchange.body = self._kept
        self._balancer.enter_again(self, why)

    def _name_replica(self, replica: BalancedReplica) -> None:
        """Have the response set the cookie that leads the browser's next requests to the same replica."""
        cookie = self.principal.replica_cookie
        if cookie and self.principal.replica != replica.id:
            name, attributes = cookie
            self._exchange.added_headers = ((b"Set-Cookie", name + b"=" + replica.id + attributes),)

    def _end(self, *, is_error: bool) -> None:
        """Count the request as one that has ended here."""
        replica = self._leave_replica()
        used = self._usage.used() if self._usage else NOTHING_USED
        if used is not NOTHING_USED:
            self._balancer.count_use(self.principal, used)
        replica.figures.count(self._client.loop.time() - self._entered_at, self._sent_bytes, used, is_error=is_error)

    def _leave_replica(self) -> BalancedReplica:
        replica, self._replica = self._replica, None
        assert replica
        self._slot.pool = None
        self._balancer.leave(replica)
        return replica
