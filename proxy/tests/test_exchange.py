"""An exchange of a request and its response, between a client and an upstream that write down what they are sent."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from proxy.authorization.decisions import ANONYMOUS, Deferred, ForwardDecision, Principal
from proxy.http import responses
from proxy.http.headers import Header, RequestHead
from proxy.http.response_parser import BodyFraming, ResponseHead
from proxy.http.responses import LocalResponse
from proxy.limits import ProxyLimits
from proxy.listener.exchange import (
    CONTINUE,
    FOREVER,
    MAX_JOINED_BYTES,
    RECEIVED,
    RECEIVING,
    SENT,
    Exchange,
    response_head_bytes,
)
from proxy.tests.site import route

NOW = 1000.0


class Side:
    """A client or an upstream."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.did: list[str] = []
        self.transport = SimpleNamespace(write=self.written.append, abort=lambda: self.did.append("abort"))

    # --- of an upstream

    def send(self, handler: Exchange, data: bytes, **how: bool) -> None:
        self.written.append(data)
        self.how = how

    def write(self, data: bytes, *, is_complete: bool) -> None:
        self.written.append(data)
        self.how = {"is_complete": is_complete}

    def abort(self) -> None:
        self.did.append("abort")

    def pause_reading(self) -> None:
        self.did.append("pause")


class Client(Side):
    """A client whose requests are decided as the test says, and whose app is the upstream."""

    limits = ProxyLimits()
    peer, listen_port = "192.0.2.1", None

    def __init__(self, decision: Any = None, *, is_idle: bool = True) -> None:
        super().__init__()
        self.loop = SimpleNamespace(time=lambda: NOW, create_task=lambda task: asyncio.ensure_future(task))
        self.deadline = 0.0
        self.is_paused = self.is_upstream_paused = self.closes = False
        self.upstream = Side()
        self.refusal: LocalResponse | None = None
        self.connect_error: Exception | None = None
        pool = SimpleNamespace(take_idle=lambda now: self.upstream if is_idle else None, connect=self._connect)
        self.slot: Any = SimpleNamespace(pool=pool, balancer=None)
        self.authorizer: Any = SimpleNamespace(
            authorize=lambda request, peer, port: decision,
            serve=self._serve,
            failed=lambda failure: responses.UPSTREAM_FAILED,
            unreachable=lambda request, principal, is_silent: responses.text(504 if is_silent else 502, "unreachable"),
            response_headers=lambda principal, headers: headers,
        )

    def acquire_slot(self, forward: ForwardDecision) -> Any:
        return self.refusal or self.slot

    def is_last(self, exchange: Exchange) -> bool:
        return self.closes

    def finish(self, exchange: Exchange, *, closes: bool) -> None:
        self.did.append(f"finish, closes={closes}")

    def start_tunnel(self, upstream: Side) -> None:
        self.did.append("tunnel")

    def update_reading(self) -> None:
        self.did.append("read on")

    async def _connect(self) -> Side:
        if self.connect_error:
            raise self.connect_error
        return self.upstream

    async def _serve(self, deferred: Deferred) -> LocalResponse:
        raise RuntimeError


def forward(method: str = "GET", length: int | None = 0, **changes: Any) -> ForwardDecision:
    """Return the decision to forward a request with a body of this length, None for chunks."""
    principal = Principal(route(), *ANONYMOUS, is_reachable=True, headers=[])
    fields: dict[str, Any] = {
        "is_websocket": False,
        "expects_continue": False,
        "is_http_10": False,
        "client": "192.0.2.1",
    }
    return ForwardDecision(principal, method.encode(), b"/x", [(b"A", b"b")], length, **(fields | changes))


def exchange(client: Client, method: str = "GET", *, is_complete: bool = True) -> Exchange:
    """Return an exchange of the client that has begun."""
    begun = Exchange(cast(Any, client), RequestHead(method.encode(), b"/x", []), keeps_alive=True)
    begun.request_state = RECEIVED if is_complete else RECEIVING
    begun.advance()
    return begun


def head(framing: BodyFraming = BodyFraming.SIZED, status: int = 200, **changes: Any) -> ResponseHead:
    """Return a response's head."""
    return ResponseHead(status, b"OK", [(b"X", b"y")], framing, **changes)


def test_a_request_goes_over_an_idle_connection() -> None:
    client = Client(forward())
    sent = exchange(client)
    assert client.upstream.written == [b"GET /x HTTP/1.1\r\nA: b\r\n\r\n"]
    assert client.upstream.how == {"is_head": False, "may_upgrade": False, "is_complete": True}
    assert (sent.request_state, sent.is_reused) == (SENT, True)
    assert client.deadline == NOW + client.limits.response_seconds
    assert client.upstream.did == []
    sent.advance()
    assert len(client.upstream.written) == 1


@pytest.mark.parametrize(("method", "is_websocket"), [("HEAD", False), ("GET", True)])
def test_the_upstream_knows_what_response_may_come(method: str, *, is_websocket: bool) -> None:
    client = Client(forward(method, is_websocket=is_websocket))
    exchange(client, method)
    assert client.upstream.how == {"is_head": method == "HEAD", "may_upgrade": is_websocket, "is_complete": True}


@pytest.mark.parametrize("length", [6, None])
def test_a_body_is_sent_as_it_comes(length: int | None) -> None:
    client = Client(forward("POST", length, expects_continue=True))
    client.is_paused = False
    sending = Exchange(cast(Any, client), RequestHead(b"POST", b"/x", []), keeps_alive=True)
    sending.body = [b"a"]
    sending.advance()
    sending.body += [b"bc", b"def"]
    sending.advance()
    assert client.deadline == 0.0
    sending.request_state = RECEIVED
    sending.advance()
    assert client.deadline == NOW + client.limits.response_seconds
    sending.advance()
    start = b"POST /x HTTP/1.1\r\nA: b\r\n\r\n"
    parts = [b"1\r\na\r\n", b"2\r\nbc\r\n3\r\ndef\r\n", b"0\r\n\r\n"] if length is None else [b"a", b"bcdef", b""]
    assert client.upstream.written == [start + parts[0], *parts[1:]]
    assert (client.written, client.upstream.how) == ([CONTINUE], {"is_complete": True})


def test_a_body_that_came_already_is_not_asked_for() -> None:
    client = Client(forward("POST", None, expects_continue=True))
    whole = Exchange(cast(Any, client), RequestHead(b"POST", b"/x", []), keeps_alive=True)
    whole.body, whole.request_state = [b"abc"], RECEIVED
    whole.advance()
    assert client.upstream.written[0].endswith(b"\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
    assert client.written == []


def test_none_begins_while_the_client_does_not_read() -> None:
    client = Client(forward())
    client.is_paused = True
    waiting = exchange(client)
    assert (client.upstream.written, waiting.forward) == ([], None)
    client.is_paused = False
    waiting.advance()
    assert waiting.request_state is SENT


async def test_a_client_that_stopped_reading_meanwhile_pauses_the_upstream() -> None:
    client = Client(forward(), is_idle=False)
    sent = exchange(client)
    client.is_paused = True
    assert sent.task
    await sent.task
    assert sent.task is None
    assert (sent.is_reused, client.upstream.did, client.did) == (False, ["pause"], ["read on"])


@pytest.mark.parametrize(
    ("method", "closes", "local_closes"), [("GET", True, False), ("HEAD", False, False), ("GET", False, True)]
)
def test_a_response_of_our_own_ends_the_exchange(method: str, *, closes: bool, local_closes: bool) -> None:
    client = Client(responses.text(403, "no", closes=local_closes))
    client.closes = closes
    exchange(client, method)
    (written,) = client.written
    assert (b"Connection: close" in written) == (closes or local_closes)
    assert written.endswith(b"\r\n\r\nno\n") == (method == "GET")
    assert client.did == [f"finish, closes={closes or local_closes}"]


def test_a_limit_that_is_reached_is_the_response() -> None:
    client = Client(forward())
    client.refusal = responses.text(429, "too many")
    exchange(client)
    assert client.written[0].startswith(b"HTTP/1.1 429 ")
    assert client.upstream.written == []


@pytest.mark.parametrize(
    ("error", "status"), [(TimeoutError(), b"504"), (ConnectionRefusedError(), b"502"), (None, b"")]
)
async def test_an_app_that_cannot_be_connected_to_is_said(error: Exception | None, status: bytes) -> None:
    client = Client(forward(), is_idle=False)
    client.connect_error = error
    tried = exchange(client)
    assert tried.task
    await tried.task
    assert tried.task is None
    assert [each[9:12] for each in client.written] == ([status] if error else [])


async def test_a_fault_of_ours_is_said_and_reported() -> None:
    client = Client(cast(Any, object()))
    failed = exchange(client)
    task = failed.task
    assert task
    with pytest.raises(RuntimeError):
        await task
    assert failed.task is None
    assert client.written[0].startswith(b"HTTP/1.1 500 ")


@pytest.mark.parametrize(
    ("framing", "closes", "keeps"),
    [
        (BodyFraming.SIZED, False, True),
        (BodyFraming.SIZED, True, False),
        (BodyFraming.CHUNKED, False, True),
        (BodyFraming.UNTIL_CLOSE, False, False),
    ],
)
def test_a_response_passes_through(framing: BodyFraming, *, closes: bool, keeps: bool) -> None:
    client = Client(forward())
    sent = exchange(client)
    client.closes = closes
    sent.response_started(head(framing), b"ab")
    sent.response_body(b"c")
    assert (client.deadline, sent.is_response_started, sent.keeps_alive) == (FOREVER, True, keeps)
    expected = response_head_bytes(head(framing), [(b"X", b"y")], closes=not keeps)
    assert client.written == [expected + b"ab", b"c"]
    sent.response_ended()
    assert (sent.upstream, client.did) == (None, [f"finish, closes={not keeps}"])


@pytest.mark.parametrize(("size", "writes"), [(MAX_JOINED_BYTES, 1), (MAX_JOINED_BYTES + 1, 2)])
def test_a_large_body_is_not_copied_behind_its_head(size: int, writes: int) -> None:
    client = Client(forward())
    exchange(client).response_started(head(), b"x" * size)
    assert len(client.written) == writes
    assert b"".join(client.written).endswith(b"\r\n\r\n" + b"x" * size)


def test_a_response_that_began_early_has_no_deadline() -> None:
    client = Client(forward("POST", None))
    early = exchange(client, "POST", is_complete=False)
    early.response_started(head(), b"")
    early.request_state = RECEIVED
    early.advance()
    assert client.deadline == FOREVER


def test_a_tunnel_begins_with_its_first_bytes() -> None:
    client = Client(forward(is_websocket=True))
    exchange(client).response_upgraded(head(BodyFraming.NONE, 101), b"frame")
    (written,) = client.written
    assert written.startswith(b"HTTP/1.1 101 OK\r\nX: y\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    assert written.endswith(b"frame")
    assert client.did == ["tunnel"]


@pytest.mark.parametrize(
    ("method", "length", "is_idle", "is_malformed", "is_retried"),
    [
        ("GET", 0, True, False, True),
        ("HEAD", 0, True, False, True),
        ("OPTIONS", 0, True, False, True),
        ("POST", 0, True, False, False),
        ("GET", 3, True, False, False),
        ("GET", None, True, False, False),
        ("GET", 0, True, True, False),
        ("GET", 0, False, False, False),
    ],
)
async def test_only_what_may_be_repeated_is_sent_again(
    method: str, length: int | None, is_idle: bool, is_malformed: bool, is_retried: bool
) -> None:
    client = Client(forward(method, length), is_idle=is_idle)
    lost = exchange(client, method)
    if lost.task:
        await lost.task
    lost.upstream_lost(is_malformed=is_malformed)
    assert (lost.task is not None) == is_retried
    assert [each[9:12] for each in client.written] == ([] if is_retried else [b"502"])
    if lost.task:
        await lost.task
        assert len(client.upstream.written) == 2
        lost.upstream_lost(is_malformed=False)
        assert [each[9:12] for each in client.written] == [b"502"]


def test_a_response_that_breaks_off_is_left_incomplete() -> None:
    client = Client(forward())
    broken = exchange(client)
    broken.response_started(head(length=9), b"ab")
    broken.upstream_lost(is_malformed=False)
    assert (client.did, broken.upstream) == (["abort"], None)


async def test_cancelling_ends_connection_and_task() -> None:
    client = Client(forward())
    sent = exchange(client)
    sent.cancel()
    assert (sent.upstream, client.upstream.did) == (None, ["abort"])
    waiting = exchange(Client(forward(), is_idle=False))
    task = waiting.task
    assert task
    waiting.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (task.cancelled(), waiting.task) == (True, None)


def test_a_slow_app_pauses_the_client() -> None:
    client = Client(forward("POST", None))
    sent = exchange(client, "POST", is_complete=False)
    sent.upstream_paused()
    assert (client.is_upstream_paused, client.did) == (True, ["read on"])
    sent.upstream_resumed()
    assert (client.is_upstream_paused, client.did) == (False, ["read on", "read on"])


@pytest.mark.parametrize(
    ("framing", "status", "closes", "lines"),
    [
        (BodyFraming.SIZED, 200, False, []),
        (BodyFraming.SIZED, 200, True, [b"Connection: close"]),
        (BodyFraming.CHUNKED, 200, False, [b"Transfer-Encoding: chunked"]),
        (BodyFraming.CHUNKED, 200, True, [b"Transfer-Encoding: chunked", b"Connection: close"]),
        (BodyFraming.NONE, 101, False, [b"Connection: Upgrade", b"Upgrade: websocket"]),
    ],
)
def test_a_head_is_written_with_what_concerns_this_hop(
    framing: BodyFraming, status: int, closes: bool, lines: list[bytes]
) -> None:
    headers: list[Header] = [(b"X", b"1"), (b"Y", b"2")]
    written = response_head_bytes(head(framing, status), headers, closes=closes)
    assert written == b"\r\n".join([b"HTTP/1.1 %d OK" % status, b"X: 1", b"Y: 2", *lines, b"", b""])
