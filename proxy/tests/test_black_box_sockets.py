"""Cases 22 to 27 and 40 of the black-box table: websockets, directly and through a gateway."""

import asyncio
import json

import pytest

from proxy.tests.black_box import log_in
from proxy.tests.servers import WAYS, RunningProxy, running
from proxy.tests.site import HOST, ORIGIN, cookie
from proxy.tests.wire import BINARY, CLOSE, PING, PONG, TEXT, Client, connected, handshake, masked, request
from tests.wait import SECONDS

pytestmark = pytest.mark.loopback

LAST = 0x80


async def opened(client: Client, target: str = "/ws", **headers: str) -> Client:
    """Return the connection with a websocket on it."""
    await client.send(handshake(target, **(log_in() | headers)))
    assert (await client.head()).status == 101
    return client


async def test_22_frames_are_forwarded_unchanged(proxy: RunningProxy) -> None:
    async with connected(proxy.port) as client:
        await opened(client)
        await client.send(masked(TEXT, "grüße".encode()))
        assert await client.frame() == (LAST | TEXT, "grüße".encode())
        await client.send(masked(BINARY, bytes(range(256))))
        assert await client.frame() == (LAST | BINARY, bytes(range(256)))
        await client.send(masked(PING, b"still there?"))
        assert await client.frame() == (LAST | PONG, b"still there?")


async def test_22_fragmented_message_stays_one_message(proxy: RunningProxy) -> None:
    async with connected(proxy.port) as client:
        await opened(client)
        await client.send(masked(TEXT, b"a", is_last=False) + masked(0, b"b", is_last=False) + masked(0, b"c"))
        frames = [await client.frame()]
        while not frames[-1][0] & LAST:
            frames.append(await client.frame())
    assert b"".join(content for _, content in frames) == b"abc"
    assert [first & 0x0F for first, _ in frames] == [TEXT] + [0] * (len(frames) - 1)
    assert len(frames) == 3


async def test_22_frames_may_follow_the_handshake_directly(proxy: RunningProxy) -> None:
    async with connected(proxy.port) as client:
        await client.send(handshake(**log_in()) + masked(TEXT, b"early"))
        assert (await client.head()).status == 101
        assert await client.frame() == (LAST | TEXT, b"early")


async def test_pipelined_handshake_is_served_after_the_response(proxy: RunningProxy) -> None:
    async with connected(proxy.port) as client:
        await client.send(request("GET", "/events", **log_in()))
        events = await client.head()
        await client.send(handshake(**log_in()))
        for _ in range(4):
            await proxy.app.take_event()
        assert (await client.body(events)).count(b"data:") == 4
        assert (await client.head()).status == 101


async def test_23_app_chooses_the_subprotocol(proxy: RunningProxy) -> None:
    offered = "other, v1.kernel.websocket.jupyter.org"
    async with connected(proxy.port) as client:
        await client.send(handshake("/ws/headers", Sec_WebSocket_Protocol=offered, **log_in()))
        assert (await client.head()).all("sec-websocket-protocol") == ["v1.kernel.websocket.jupyter.org"]
        headers = {name.lower(): value for name, value in json.loads((await client.frame())[1])}
    assert headers["sec-websocket-protocol"] == offered


async def test_08_and_03_handshake_has_host_and_no_platform_cookies(proxy: RunningProxy) -> None:
    async with connected(proxy.port) as client:
        await opened(client, "/ws/headers", Cookie=f"keep=me; {cookie()}; other=2")
        headers = {name.lower(): value for name, value in json.loads((await client.frame())[1])}
    assert (headers["cookie"], headers["host"], headers["origin"]) == ("keep=me; other=2", HOST, ORIGIN)
    assert headers["upgrade"].lower() == "websocket"


async def test_24_large_message_is_forwarded(proxy: RunningProxy) -> None:
    content = bytes(range(256)) * 80_000
    async with connected(proxy.port) as client:
        await opened(client)
        client.writer.write(masked(BINARY, content))
        received = b""
        while len(received) < len(content):
            received += (await client.frame())[1]
    assert received == content


async def test_25_close_reason_arrives_from_the_app(proxy: RunningProxy) -> None:
    async with connected(proxy.port) as client:
        await opened(client, "/ws/leave")
        assert await client.frame() == (LAST | CLOSE, (4001).to_bytes(2, "big") + b"bye")


async def test_25_close_reason_arrives_from_the_browser(proxy: RunningProxy) -> None:
    farewell = (4002).to_bytes(2, "big") + b"so long"
    async with connected(proxy.port) as client:
        await opened(client)
        await client.send(masked(CLOSE, farewell))
        assert await client.frame() == (LAST | CLOSE, farewell)
        assert await client.ended() == b""
    await proxy.app.until(lambda: proxy.app.connections == 0)


async def test_26_refusal_of_the_app_is_forwarded(proxy: RunningProxy) -> None:
    async with connected(proxy.port) as client:
        reply = await client.ask(handshake("/ws/refused", **log_in()))
    assert (reply.status, reply.all("x-why"), reply.body) == (403, ["app"], b"no")


async def test_27_lost_browser_closes_the_upstream_connection(proxy: RunningProxy) -> None:
    async with connected(proxy.port) as client:
        await opened(client)
        await client.send(masked(TEXT, b"x"))
        await client.frame()
        client.reset()
        await proxy.app.until(lambda: proxy.app.connections == 0)


@pytest.mark.parametrize("name", WAYS)
async def test_40_websockets_to_stopped_app_leak_nothing(name: str) -> None:
    async with running(name, port=1) as stopped:
        for _ in range(300):
            async with connected(stopped.port) as client:
                await client.send(handshake(**log_in()))
                assert (await client.head()).status == 502
        async with asyncio.timeout(SECONDS):
            while sum(len(plane.connections) for plane in stopped.planes) > 10:
                await asyncio.sleep(0.01)


async def test_pings_do_not_count_as_use(app_proxy: RunningProxy) -> None:
    plane = app_proxy.planes[0]
    async with connected(app_proxy.port) as client:
        await opened(client)
        await client.send(masked(TEXT, b"x"))
        await client.frame()
        plane._sweep()
        assert app_proxy.control_plane.sessions_used == {"s1"}
        app_proxy.control_plane.sessions_used.clear()
        await client.send(masked(PING, b"beat"))
        assert await client.frame() == (LAST | PONG, b"beat")
        plane._sweep()
        assert app_proxy.control_plane.sessions_used == set()
