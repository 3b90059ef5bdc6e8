"""The parsers of requests and of responses, without a connection."""

from collections import deque
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from proxy.http.headers import MalformedRequestError
from proxy.http.response_parser import (
    MAX_INTERIM_RESPONSES,
    BodyFraming,
    MalformedResponseError,
    ResponseHead,
    ResponseParser,
)
from proxy.limits import ProxyLimits
from proxy.listener.exchange import RECEIVED, RECEIVING, Exchange
from proxy.listener.request_parser import HeadTooLargeError, RequestParser

LIMIT = 200
HEAD = b"HTTP/1.1 200 Fine\r\nX-One: 1\r\nx-two:\t2  \r\nContent-Length: 3 \r\n\r\n"
EARLY = b"HTTP/1.1 103 Early\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def response(
    *pieces: bytes, limit: int = LIMIT, is_head_request: bool = False, may_upgrade: bool = False
) -> tuple[ResponseHead | None, bytes, ResponseParser]:
    """Return the head that is found in these reads, what is behind it, and the parser."""
    parser = ResponseParser(limit)
    parser.expect(is_head_request=is_head_request, may_upgrade=may_upgrade)
    *first, last = pieces
    for piece in first:
        assert parser.feed_head(piece) is None
    return parser.feed_head(last), parser.rest, parser


def padded(size: int) -> bytes:
    """Return a response's head of so many bytes."""
    line = b"HTTP/1.1 200 OK\r\nX: "
    return line + b"x" * (size - len(line) - 4) + b"\r\n\r\n"


@pytest.mark.parametrize("cut", range(1, len(HEAD)))
def test_a_head_may_come_in_any_two_reads(cut: int) -> None:
    head, rest, _ = response(HEAD[:cut], HEAD[cut:] + b"abc")
    assert_whole(head)
    assert rest == b"abc"


def assert_whole(head: ResponseHead | None) -> None:
    """Check that this is HEAD, parsed."""
    assert head
    assert (head.status, head.reason, head.framing, head.length) == (200, b"Fine", BodyFraming.SIZED, 3)
    assert head.headers == [(b"X-One", b"1"), (b"x-two", b"2"), (b"Content-Length", b"3")]


@pytest.mark.parametrize(("size", "is_small"), [(LIMIT, True), (LIMIT + 1, False)])
@pytest.mark.parametrize("before", [b"", EARLY])
@pytest.mark.parametrize("cut", [0, 1, 60, LIMIT - 30])
def test_heads_are_limited_with_what_was_announced(size: int, before: bytes, cut: int, *, is_small: bool) -> None:
    whole = before + padded(size - len(before))
    pieces = [whole[:cut], whole[cut:]] if cut else [whole]
    if is_small:
        assert response(*pieces)[0]
    else:
        with pytest.raises(MalformedResponseError):
            response(*pieces)


@pytest.mark.parametrize("before", [b"", EARLY])
def test_a_head_that_never_ends_is_refused_at_the_limit(before: bytes) -> None:
    parser = response((before + padded(LIMIT + 50))[: LIMIT - 1], b"x")[2]
    with pytest.raises(MalformedResponseError):
        parser.feed_head(b"x")
    with pytest.raises(MalformedResponseError):
        response(padded(LIMIT + 50)[: LIMIT + 1])


def test_a_hundred_interim_responses_are_skipped() -> None:
    many = EARLY * MAX_INTERIM_RESPONSES
    head, _, parser = response(many + HEAD, limit=10_000)
    assert_whole(head)
    with pytest.raises(MalformedResponseError):
        response(many + EARLY + HEAD, limit=10_000)
    parser.expect(is_head_request=False, may_upgrade=False)
    assert parser.feed_head(many + HEAD)
    assert response(EARLY)[0] is None


@pytest.mark.parametrize("may_upgrade", [True, False])
def test_protocols_are_switched_only_where_that_was_asked_for(*, may_upgrade: bool) -> None:
    switch = b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nframe"
    if not may_upgrade:
        with pytest.raises(MalformedResponseError):
            response(switch)
        return
    head, rest, _ = response(switch, may_upgrade=True)
    assert head
    assert (head.status, head.framing, head.is_persistent, rest) == (101, BodyFraming.NONE, False, b"frame")


@pytest.mark.parametrize(
    ("line", "headers", "is_head", "framing", "length", "is_persistent"),
    [
        ("1.1 200 OK", ["Content-Length: 5"], False, BodyFraming.SIZED, 5, True),
        ("1.1 200 OK", ["content-length: 0"], False, BodyFraming.SIZED, 0, True),
        ("1.1 200 OK", ["Content-Length: 5", "Connection: close"], False, BodyFraming.SIZED, 5, False),
        ("1.0 200 OK", ["Content-Length: 5"], False, BodyFraming.SIZED, 5, False),
        ("1.0 200 OK", ["Content-Length: 5", "Connection: keep-alive"], False, BodyFraming.SIZED, 5, True),
        ("1.1 200 OK", ["TRANSFER-ENCODING: Chunked  "], False, BodyFraming.CHUNKED, 0, True),
        ("1.1 200 OK", [], False, BodyFraming.UNTIL_CLOSE, 0, False),
        ("1.1 200 OK", ["Content-Length: 5"], True, BodyFraming.NONE, 0, True),
        ("1.1 200 OK", ["Transfer-Encoding: chunked"], True, BodyFraming.NONE, 0, True),
        ("1.1 204 No", ["Content-Length: 5"], False, BodyFraming.NONE, 0, True),
        ("1.1 304 No", ["Content-Length: 5"], False, BodyFraming.NONE, 0, True),
        ("1.1 205 No", ["Content-Length: 5"], False, BodyFraming.SIZED, 5, True),
        ("1.1 200 OK", ["X-Content-Len: 5", "X-Content-Encodin: 7"], False, BodyFraming.UNTIL_CLOSE, 0, False),
    ],
)
def test_the_end_of_a_body_is_known_by_its_head(
    line: str, headers: Sequence[str], is_head: bool, framing: BodyFraming, length: int, is_persistent: bool
) -> None:
    head, _, _ = response("\r\n".join([f"HTTP/{line}", *headers, "", ""]).encode(), is_head_request=is_head)
    assert head
    assert (head.framing, head.length, head.is_persistent) == (framing, length, is_persistent)


@pytest.mark.parametrize(
    "lines",
    [
        "SSH-2.0-OpenSSH",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
        "HTTP/1.1 304 OK\r\nTransfer-Encoding: gzip",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\t",  # which llhttp takes for another coding
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3",
        "HTTP/1.1 200 OK\r\nX: a\x00b",
        "HTTP/1.1 200 OK\r\nX: a\rSet-Cookie: b",
        "HTTP/1.1 200 OK\r\nX: a\nSet-Cookie: b",
        "HTTP/1.1 200 OK\r\nX: a\r\n b",
    ],
)
def test_what_two_readers_could_read_in_two_ways_is_refused(lines: str) -> None:
    with pytest.raises(MalformedResponseError):
        response(lines.encode() + b"\r\n\r\n")


@pytest.mark.parametrize(
    ("reason", "kept"), [(b"All is well", b"All is well"), (b"\xc3\xa9", b""), (b"a\x01b", b""), (b"", b"")]
)
def test_a_printable_reason_is_kept(reason: bytes, kept: bytes) -> None:
    head, _, _ = response(b"HTTP/1.1 200 " + reason + b"\r\n\r\n")
    assert head
    assert head.reason == kept


def test_a_chunked_body_ends_with_its_trailers_and_no_later() -> None:
    head, rest, parser = response(CHUNKED.replace(b"chunked", b"chunked  ") + b"3\r\nabc\r\n")
    assert head
    parser.feed_chunks(rest)
    assert not parser.is_complete
    parser.feed_chunks(b"0\r\nX: 1\r\n")
    assert not parser.is_complete
    parser.feed_chunks(b"\r\n")
    assert parser.is_complete
    assert head.headers == [(b"Transfer-Encoding", b"chunked")]
    with pytest.raises(MalformedResponseError):
        parser.feed_chunks(HEAD)
    parser.expect(is_head_request=False, may_upgrade=False)
    assert not parser.is_complete


def test_what_is_no_chunk_is_refused() -> None:
    parser = response(CHUNKED)[2]
    with pytest.raises(MalformedResponseError):
        parser.feed_chunks(b"xyz\r\n")


def test_content_has_no_limit_and_what_is_between_has_one() -> None:
    parser = response(CHUNKED)[2]
    for _ in range(10):
        parser.feed_chunks(b"32\r\n" + b"x" * 50 + b"\r\n")
    parser.feed_chunks(b"0\r\n")
    parser.feed_chunks(b"X: " + b"x" * (LIMIT - 6))
    with pytest.raises(MalformedResponseError):
        parser.feed_chunks(b"x")


class Reader:
    """Parses what a client sends."""

    def __init__(self, limit: int = LIMIT) -> None:
        limits = ProxyLimits(head_bytes=limit, head_seconds=15)
        self.client: Any = SimpleNamespace(limits=limits, deadline=0.0, loop=SimpleNamespace(time=lambda: 1000.0))
        self.exchanges: deque[Exchange] = deque()
        self.parser = RequestParser(cast(Any, self.client), self.exchanges)

    def feed(self, *pieces: bytes) -> bytes | None:
        """Parse these reads; return what the last one returns."""
        found = [self.parser.feed(piece) for piece in pieces]
        return found[-1]


def wide(size: int) -> bytes:
    """Return a request of which target, names and values have so many bytes."""
    return b"GET /abc HTTP/1.1\r\nHost: h\r\nX: " + b"x" * (size - 10) + b"\r\n\r\n"


def test_a_request_may_come_byte_by_byte() -> None:
    reader = Reader()
    whole = b"POST /a?b HTTP/1.1\r\nHost: h\t\r\nX-Two:  2 \r\nContent-Length: 3\r\n\r\nabc"
    for position, byte in enumerate(whole):
        assert reader.feed(bytes([byte])) is None
        assert reader.parser.is_in_head == (position < whole.index(b"abc") - 1)
    (exchange,) = reader.exchanges
    request = exchange.request
    assert (request.method, request.target, request.is_http_10) == (b"POST", b"/a?b", False)
    assert request.headers == [(b"Host", b"h"), (b"X-Two", b"2"), (b"Content-Length", b"3")]
    assert (exchange.body, exchange.request_state, exchange.keeps_alive) == ([b"a", b"b", b"c"], RECEIVED, True)


@pytest.mark.parametrize(
    ("version", "connection", "is_http_10", "keeps_alive"),
    [
        ("1.1", "close", False, False),
        ("1.1", "keep-alive", False, True),
        ("1.0", "x", True, False),
        ("1.0", "keep-alive", True, True),
    ],
)
def test_versions_differ_in_what_keeps_a_connection(
    version: str, connection: str, is_http_10: bool, keeps_alive: bool
) -> None:
    reader = Reader()
    reader.feed(f"GET / HTTP/{version}\r\nHost: h\r\nConnection: {connection}\r\n\r\n".encode())
    (exchange,) = reader.exchanges
    assert (exchange.request.is_http_10, exchange.keeps_alive) == (is_http_10, keeps_alive)


def test_the_deadline_begins_with_the_first_request() -> None:
    reader = Reader()
    reader.feed(b"GET")
    assert reader.client.deadline == 1015.0
    reader.client.deadline = 7.0
    reader.feed(wide(20)[3:] + wide(20)[:10])
    assert (reader.client.deadline, len(reader.exchanges), reader.parser.is_in_head) == (7.0, 1, True)
    reader.feed(wide(20)[10:])
    assert [each.request.target for each in reader.exchanges] == [b"/abc", b"/abc"]


def test_large_heads_are_refused_and_bodies_are_not() -> None:
    assert Reader().feed(wide(LIMIT)) is None
    body = b"x" * LIMIT
    assert Reader().feed(wide(LIMIT - 20)[:-2] + b"Content-Length: %d\r\n\r\n" % len(body) + body) is None
    with pytest.raises(HeadTooLargeError):
        Reader().feed(wide(LIMIT + 1))
    reader = Reader()
    reader.feed(b"GET /" + b"x" * (LIMIT - 6), b"x")
    with pytest.raises(HeadTooLargeError):
        reader.feed(b"x")


def test_a_later_head_is_counted_by_itself() -> None:
    reader = Reader()
    for _ in range(5):
        reader.feed(wide(LIMIT // 2))
    reader.feed(wide(LIMIT)[: LIMIT // 2], wide(LIMIT)[LIMIT // 2 :])
    assert len(reader.exchanges) == 6


def test_trailers_are_dropped_and_limited_as_heads_are() -> None:
    reader = Reader()
    reader.feed(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
    (exchange,) = reader.exchanges
    for _ in range(10):
        reader.feed(b"32\r\n" + b"x" * 50 + b"\r\n")
    assert exchange.request_state is RECEIVING
    reader.feed(b"0\r\n", b"X: " + b"x" * (LIMIT - 7))
    with pytest.raises(HeadTooLargeError):
        reader.feed(b"xx")
    assert [name for name, _ in exchange.request.headers] == [b"Host", b"Transfer-Encoding"]
    assert b"".join(exchange.body) == b"x" * 500


def test_what_follows_an_upgrade_is_no_http() -> None:
    reader = Reader()
    upgrade = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    assert reader.feed(upgrade + b"frame") == b"frame"
    assert Reader().feed(upgrade) == b""
    with pytest.raises(MalformedRequestError):
        Reader().feed(b"SSH-2.0-OpenSSH\r\n")
