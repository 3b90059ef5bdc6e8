"""Cases 1 to 21 of the black-box table: requests and responses, directly and through a gateway."""

import asyncio
import hashlib

import pytest

from proxy.tests.app import most_under_way
from proxy.tests.black_box import log_in, seen, seen_headers
from proxy.tests.servers import REPLICAS, WAYS, RunningProxy, running
from proxy.tests.site import HOST, cookie
from proxy.tests.wire import connected, request
from tests.wait import SECONDS

pytestmark = pytest.mark.loopback

ODD_PATH = "/echo/a%2Fb%20c/%C3%A9/x%2e%2e/@u?q=1&q=2&z=%26+%20"


@pytest.mark.parametrize(
    "target", [ODD_PATH, "/echo//a/./b", "/echo/../b", "/echo/%00;x='!$(),*~", "/echo?", "/echo?a#b"]
)
async def test_01_and_02_target_is_forwarded_unchanged(proxy: RunningProxy, target: str) -> None:
    async with connected(proxy.port) as client:
        reply = await client.ask(request("GET", target, **log_in()))
    assert seen(reply)["line"] == f"GET {target} HTTP/1.1"


async def test_03_host_header_is_forwarded_unchanged(proxy: RunningProxy) -> None:
    async with connected(proxy.port) as client:
        headers = dict(seen_headers(await client.ask(request(**log_in()))))
    assert (headers["host"], headers["x-forwarded-host"], headers["x-forwarded-proto"]) == (HOST, HOST, "http")


async def test_04_client_address_cannot_be_forged(proxy: RunningProxy) -> None:
    forged = {
        "X_Forwarded_For": "6.6.6.6",
        "X_Real_IP": "6.6.6.6",
        "Forwarded": "for=6.6.6.6",
        "X_Forwarded_Host": "evil",
    }
    async with connected(proxy.port) as client:
        headers = seen_headers(await client.ask(request(**log_in(), **forged)))
    assert "6.6.6.6" not in str(headers)
    assert [value for name, value in headers if name == "x-forwarded-for"] == ["127.0.0.1"]
    assert [value for name, value in headers if name == "x-forwarded-host"] == [HOST]


async def test_05_and_06_hop_by_hop_request_headers_are_dropped(proxy: RunningProxy) -> None:
    hop = {"Keep_Alive": "timeout=5", "TE": "trailers", "Proxy_Authorization": "Basic x", "Proxy_Connection": "x"}
    named = {"Connection": "x-secret", "X_Secret": "1", "X_Open": "2"}
    async with connected(proxy.port) as client:
        headers = dict(seen_headers(await client.ask(request(**log_in(), **hop, **named))))
    assert headers.keys() == {"x-open", "host", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"}


async def test_07_hop_by_hop_response_headers_are_dropped(proxy: RunningProxy) -> None:
    async with connected(proxy.port) as client:
        reply = await client.ask(request("GET", "/hop", **log_in()))
    assert (reply.all("x-bar"), reply.all("x-foo"), reply.all("proxy-authenticate")) == (["2"], [], [])


async def test_08_platform_cookies_are_not_forwarded(proxy: RunningProxy) -> None:
    async with connected(proxy.port) as client:
        headers = seen_headers(await client.ask(request(Cookie=f"keep=me; {cookie()}; other=2")))
    assert [value for name, value in headers if name == "cookie"] == ["keep=me; other=2"]
    assert "gp_" not in str(headers)


async def test_09_several_set_cookie_headers_keep_their_order(proxy: RunningProxy) -> None:
    async with connected(proxy.port) as client:
        reply = await client.ask(request("GET", "/cookies", **log_in()))
    assert reply.all("set-cookie") == ["a=1; Expires=Wed, 21 Oct 2099 07:28:00 GMT", "b=2", "c=3"]


async def test_10_bodiless_responses_keep_the_connection(proxy: RunningProxy) -> None:
    async with connected(proxy.port) as client:
        head = await client.ask(request("HEAD", "/echo", **log_in()), has_body=False)
        assert (head.status, int(head.all("content-length")[0]) > 100) == (200, True)
        assert (await client.ask(request("GET", "/204", **log_in()), has_body=False)).status == 204
        assert (await client.ask(request("GET", "/304", **log_in()), has_body=False)).status == 304
        assert seen(await client.ask(request("GET", "/echo/last", **log_in())))["line"] == "GET /echo/last HTTP/1.1"


async def test_10_pipelined_requests_are_answered_in_order(proxy: RunningProxy) -> None:
    targets = [f"/echo/{number}" for number in range(5)]
    async with connected(proxy.port) as client:
        await client.send(b"".join(request("GET", target, **log_in()) for target in targets))
        for target in targets:
            reply = await client.head()
            reply.body = await client.body(reply)
            assert seen(reply)["line"] == f"GET {target} HTTP/1.1"


async def test_11_chunked_upload_is_streamed(proxy: RunningProxy) -> None:
    piece = bytes(64 * 1024)
    async with connected(proxy.port) as client:
        await client.send(request("POST", "/echo", Transfer_Encoding="chunked", **log_in()))
        await client.send(b"10000\r\n" + piece + b"\r\n")
        await proxy.app.until(lambda: proxy.app.uploaded >= len(piece))
        await client.send(b"3\r\nend\r\n0\r\n\r\n")
        reply = await client.head()
        reply.body = await client.body(reply)
    assert (seen(reply)["size"], seen(reply)["digest"]) == (65539, hashlib.sha256(piece + b"end").hexdigest())


@pytest.mark.parametrize("size", [1, 100_000, 20_000_000])
async def test_11_sized_upload_is_complete(proxy: RunningProxy, size: int) -> None:
    body = hashlib.sha256(b"seed").digest() * (size // 32 + 1)
    body = body[:size]
    async with connected(proxy.port) as client:
        reply = await client.ask(request("PUT", "/echo", body, **log_in()))
        assert (seen(reply)["size"], seen(reply)["digest"]) == (size, hashlib.sha256(body).hexdigest())
        assert seen(await client.ask(request(**log_in())))["size"] == 0


async def test_12_expect_continue_is_answered(proxy: RunningProxy) -> None:
    async with connected(proxy.port) as client:
        await client.send(request("PUT", "/echo", Expect="100-continue", Content_Length="3", **log_in()))
        assert (await client.head()).status == 100
        await client.send(b"abc")
        reply = await client.head()
        reply.body = await client.body(reply)
        assert seen(reply)["size"] == 3


async def test_13_server_sent_events_are_streamed(proxy: RunningProxy) -> None:
    async with connected(proxy.port) as client:
        await client.send(request("GET", "/events", **log_in()))
        assert (await client.head()).all("content-type") == ["text/event-stream"]
        events = []
        async for chunk in client.chunks():
            events.append(chunk)
            await proxy.app.take_event()  # before which it sends no other
    assert events == [b"data: %d\n\n" % number for number in range(4)]


async def test_14_slow_client_pauses_the_app(proxy: RunningProxy) -> None:
    app = proxy.app
    async with connected(proxy.port) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(request("GET", "/big", **log_in()))
        written = -1
        async with asyncio.timeout(SECONDS):
            while app.written != written or not written:
                written = app.written
                await asyncio.sleep(0.2)
    assert written < most_under_way(1 + len(proxy.planes))


async def test_15_lost_client_closes_the_upstream_connection(proxy: RunningProxy) -> None:
    async with connected(proxy.port) as client:
        await client.send(request("GET", "/think", **log_in()))
        await proxy.app.until(lambda: bool(proxy.app.requests))
    await proxy.app.until(lambda: proxy.app.connections == 0)


@pytest.mark.parametrize("how", ["dies", "dies-in-chunk"])
async def test_16_truncated_response_is_recognizable(proxy: RunningProxy, how: str) -> None:
    async with connected(proxy.port) as client:
        await client.send(request("GET", f"/{how}", **log_in()))
        assert (await client.head()).status == 200
        assert not (await client.ended()).endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("how", ["long-trailer", "many-trailers", "long-chunk-extension"])
async def test_endless_framing_of_a_response_ends_it(proxy: RunningProxy, how: str) -> None:
    async with connected(proxy.port) as client:
        await client.send(request("GET", f"/{how}", **log_in()))
        assert (await client.head()).status == 200
        rest = await client.ended()
    assert not rest.endswith((b"\r\n0\r\n\r\n", b"x\r\n\r\n"))
    assert len(rest) < 2**20


@pytest.mark.parametrize("how", ["announced-too-often", "announced-at-length"])
async def test_too_many_interim_responses_are_bad_gateway(proxy: RunningProxy, how: str) -> None:
    async with connected(proxy.port) as client:
        assert (await client.ask(request("GET", f"/{how}", **log_in()))).status == 502


@pytest.mark.parametrize("how", ["hangs-up", "nonsense"])
async def test_17_missing_response_is_bad_gateway(proxy: RunningProxy, how: str) -> None:
    async with connected(proxy.port) as client:
        hung_up = proxy.is_service and how == "hangs-up"
        assert (await client.ask(request("GET", f"/{how}", **log_in()))).status == (503 if hung_up else 502)


async def test_17_unreachable_app_is_bad_gateway() -> None:
    for name in WAYS:
        async with running(name, port=1) as running_, connected(running_.port) as client:
            assert (await client.ask(request(**log_in()))).status == 502


AMBIGUOUS = [
    "Content-Length: 5\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: chunked\r\nContent-Length: 5",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding: chunked, identity",
    "Transfer-Encoding: identity",
    "Transfer-Encoding:\x0bchunked",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    "Content-Length: 5\r\nContent-Length: 6",
    "Content-Length: +5",
    "Content-Length: 5 5",
    "Content-Length: -1",
    "X-Nul: a\x00b",
    "X-Return: a\rb",
    "X-Folded: a\r\n b",
    "X A: b",
    ": b",
    "Host: other--s1.apps.localhost",
    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA",
]


@pytest.mark.parametrize("lines", AMBIGUOUS)
async def test_18_and_19_and_21_ambiguous_requests_are_refused(proxy: RunningProxy, lines: str) -> None:
    smuggled = request("GET", "/smuggled", **log_in())
    head = request("POST", "/echo", **log_in())[:-2] + lines.encode("latin-1") + b"\r\n\r\n"
    async with connected(proxy.port) as client:
        await client.send(head + b"0\r\n\r\n" + smuggled)
        reply = await client.ended()
    assert reply.startswith((b"HTTP/1.1 400", b"HTTP/1.1 421")) or not reply
    assert proxy.app.requests == []


@pytest.mark.parametrize("line", ["TRACE /echo", "CONNECT /echo", "CONNECT echo--s1:80"])
async def test_trace_and_connect_are_refused(proxy: RunningProxy, line: str) -> None:
    method, target = line.split(" ")
    async with connected(proxy.port) as client:
        reply = await client.ask(request(method, target, **log_in()))
    assert reply.status == 405
    assert proxy.app.requests == []


@pytest.mark.parametrize("line", ["GET http://echo--s1.apps.localhost:8000/echo", "OPTIONS *"])
async def test_21_target_must_be_a_path(proxy: RunningProxy, line: str) -> None:
    method, target = line.split(" ")
    async with connected(proxy.port) as client:
        await client.send(request(method, target, Connection="close", **log_in()))
        response = await client.ended()
    assert response.startswith(b"HTTP/1.1 400")
    assert proxy.app.requests == []


async def test_20_large_header_section_is_refused_for_its_client_only(proxy: RunningProxy) -> None:
    async with connected(proxy.port) as client:
        client.writer.write(request(X_Large="x" * 1_200_000, **log_in()))
        assert (await client.ended()).startswith((b"HTTP/1.1 431", b"HTTP/1.1 400"))
    async with connected(proxy.port) as client:
        assert seen(await client.ask(request(X_Wide="x" * 50_000, **log_in())))["size"] == 0


@pytest.mark.parametrize(
    ("target", "body"),
    [
        ("/early", b"ok"),
        ("/much-announced", b"ok"),
        ("/names-its-length", b"ok"),
        ("/chunks", b"abcdefg"),
        ("/wide", b"ok"),
        ("/two", b"a"),
        ("/until-close", b"all there is"),
    ],
)
async def test_other_valid_responses_are_forwarded(proxy: RunningProxy, target: str, body: bytes) -> None:
    async with connected(proxy.port) as client:
        reply = await client.ask(request("GET", target, **log_in()))
    assert (reply.status, reply.body) == (200, body)
    assert reply.all("x-trailer") == []


async def test_unsolicited_response_is_dropped(proxy: RunningProxy) -> None:
    async with connected(proxy.port) as client:
        await client.send(request("GET", "/two-chunked", Connection="close", **log_in()))
        assert b"\r\n\r\nb" not in await client.ended()
    async with connected(proxy.port) as client:
        assert (await client.ask(request("GET", "/two", **log_in()))).body == b"a"
        assert seen(await client.ask(request("GET", "/echo/x", **log_in())))["line"] == "GET /echo/x HTTP/1.1"


@pytest.mark.parametrize("target", ["/unknown-coding", "/no-coding-after-all", "/two-codings"])
async def test_ambiguous_responses_are_refused(proxy: RunningProxy, target: str) -> None:
    """Bytes behind such a response could be taken for the next one by a reverse proxy that reuses the connection."""
    async with connected(proxy.port) as client:
        assert (await client.ask(request("GET", target, **log_in()))).status == 502


async def test_unprintable_reason_phrase_is_dropped(proxy: RunningProxy) -> None:
    async with connected(proxy.port) as client:
        await client.send(request("GET", "/odd-reason", **log_in()))
        assert (await client.reader.readuntil(b"\r\n")).split(b" ", 2)[1:] in ([b"200", b"\r\n"], [b"200", b"OK\r\n"])


async def test_upstream_connection_is_reused(proxy: RunningProxy) -> None:
    for _ in range(3):
        async with connected(proxy.port) as client:
            for _ in range(3):
                seen(await client.ask(request(**log_in())))
    assert proxy.app.accepted == (len(REPLICAS) if proxy.is_service else 1)


async def test_http_1_0_response_ends_the_connection(proxy: RunningProxy) -> None:
    async with connected(proxy.port) as client:
        await client.send(request(**log_in()).replace(b"HTTP/1.1", b"HTTP/1.0"))
        assert (await client.ended()).startswith(b"HTTP/1.1 200")
