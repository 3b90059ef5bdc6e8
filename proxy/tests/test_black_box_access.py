"""Cases 28 to 39 of the black-box table: access and its end, directly and through a gateway.

Sessions that end, log-outs and preferred ports begin in the database; here is what they come down to in the data plane.
"""

import asyncio
import time
from urllib.parse import parse_qs, urlsplit

import pytest

from proxy.authorization.signing import Keys, digest
from proxy.limits import ProxyLimits
from proxy.tests.black_box import log_in, seen
from proxy.tests.servers import RunningProxy, running
from proxy.tests.site import HOST, LOGIN, ORIGIN, SITE, cookie, grant
from proxy.tests.wire import TEXT, Client, connected, handshake, masked, request
from tests.wait import SECONDS

pytestmark = pytest.mark.loopback

LAST = 0x80
FORGED = f"gp_app={grant().to_cookie(Keys(['first:another-key-of-16']))}"
WORTHLESS = ["", cookie(label="other--s1"), cookie(expires_at=time.time()), FORGED, cookie(epoch=2), "gp_app="]


@pytest.mark.parametrize("presented", WORTHLESS)
async def test_28_and_29_invalid_cookies_are_refused(proxy: RunningProxy, presented: str) -> None:
    async with connected(proxy.port) as client:
        page = await client.ask(request(Cookie=presented, Sec_Fetch_Mode="navigate"))
        assert (page.status, page.all("location")[0].split("?")[0]) == (
            303,
            "http://platform.localhost:8000/apps/authorize",
        )
        fetched = await client.ask(request(Cookie=presented, Sec_Fetch_Mode="cors"))
        assert (fetched.status, fetched.all("x-gp-login")) == (401, [f"{ORIGIN}/"])
    async with connected(proxy.port) as client:
        assert (await client.ask(handshake(Cookie=presented))).status == 401
    assert proxy.app.accepted == 0


async def test_30_ticket_is_valid_once_for_one_endpoint(proxy: RunningProxy) -> None:
    async with connected(proxy.port) as client:
        begun = await client.ask(request("GET", "/lab?x=1", Sec_Fetch_Mode="navigate"))
        kept = begun.all("set-cookie")[0].partition(";")[0]
        asked = parse_qs(urlsplit(begun.all("location")[0]).query)
        proxy.control_plane.tickets["t1", "echo--s1", asked["s"][0]] = (grant(), asked["next"][0])
        assert (await client.ask(request("GET", "/.gp/callback?t=t1"))).status == 403
        assert (await client.ask(request("GET", "/.gp/callback?t=t2", Cookie=kept))).status == 403
        arrived = await client.ask(request("GET", "/.gp/callback?t=t1", Cookie=kept))
        assert (arrived.status, arrived.all("location")) == (303, ["/lab?x=1"])
        again = await client.ask(request("GET", "/.gp/callback?t=t1", Cookie=kept))
        assert (again.status, again.all("set-cookie")) == (403, [])
        got = arrived.all("set-cookie")[0].partition(";")[0]
        assert seen(await client.ask(request(Cookie=got)))["size"] == 0
    assert not any("/.gp/" in line for line in proxy.app.requests)


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "http://other--s1.apps.localhost:8000", "null", f"https://{HOST}"]
)
async def test_31_cross_origin_websocket_is_refused(proxy: RunningProxy, origin: str) -> None:
    async with connected(proxy.port) as client:
        assert (await client.ask(handshake(Origin=origin, **log_in()))).status == 403
    assert proxy.app.accepted == 0


async def test_32_cross_origin_changes_are_refused(proxy: RunningProxy) -> None:
    sibling = {"Origin": "http://other--s1.apps.localhost:8000"}
    own = {"Origin": ORIGIN, "Sec_Fetch_Site": "same-origin"}
    async with connected(proxy.port) as client:
        for headers in ({"Sec_Fetch_Site": "same-site"}, {"Sec_Fetch_Site": "cross-site"}, sibling):
            assert (await client.ask(request("POST", **headers, **log_in()))).status == 403
        assert proxy.app.accepted == 0
        assert (await client.ask(request("POST", **own, **log_in()))).status == 200


async def test_33_dangerous_response_headers_are_dropped(proxy: RunningProxy) -> None:
    async with connected(proxy.port) as client:
        reply = await client.ask(request("GET", "/dangerous", **log_in()))
    assert reply.all("set-cookie") == ["a=1"]
    for name in ("x-accel-redirect", "clear-site-data", "alt-svc"):
        assert reply.all(name) == []
    assert (reply.all("x-robots-tag"), reply.all("referrer-policy")) == (["noindex"], ["same-origin"])


@pytest.mark.parametrize(
    "host", ["nobody--s1.apps.localhost:8000", "apps.localhost:8000", "127.0.0.1", "container", "169.254.169.254"]
)
async def test_34_unknown_hosts_are_refused(proxy: RunningProxy, host: str) -> None:
    async with connected(proxy.port) as client:
        await client.send(request("GET", "/echo", b"", host, **log_in()))
        assert (await client.head()).status in (404, 410, 421)
    assert proxy.app.accepted == 0


async def _all_open(running_: RunningProxy, clients: list[Client], who: dict[str, str]) -> None:
    """Open a websocket, a download and a request that waits, one on each connection."""
    await clients[0].send(handshake(**who))
    assert (await clients[0].head()).status == 101
    await clients[1].send(request("GET", "/big", **who))
    assert (await clients[1].head()).status == 200
    await clients[2].send(request("GET", "/think", **who))
    await running_.app.until(lambda: any("/think" in line for line in running_.app.requests))


@pytest.mark.parametrize("how", ["session ended", "epoch moved", "login ended", "user disabled"])
async def test_35_and_36_open_connections_are_aborted_when_access_ends(proxy: RunningProxy, how: str) -> None:
    async with connected(proxy.port) as one, connected(proxy.port) as two, connected(proxy.port) as three:
        who = log_in()
        await _all_open(proxy, [one, two, three], who)
        table = proxy.table
        match how:
            case "session ended":
                proxy.withdraw()
            case "epoch moved":
                proxy.change(epoch=2)
            case "login ended":
                table.revocations.revoke_login(LOGIN, time.time())
            case "user disabled":
                table.revocations.revoke_user(7, time.time())
        await one.until_closed()
        assert len(await two.ended()) < 200 * 2**20
        assert b"200 OK" not in await three.ended()
        await proxy.app.until(lambda: proxy.app.connections == 0)
    async with connected(proxy.port) as client:
        assert (await client.ask(request(**who))).status in (401, 410, 421)


async def test_36_connections_of_others_stay_open(proxy: RunningProxy) -> None:
    other = log_in(user=8, login=digest("of somebody else"))
    async with connected(proxy.port) as client:
        await client.send(handshake(**other))
        assert (await client.head()).status == 101
        proxy.table.revocations.revoke_login(LOGIN, time.time())
        proxy.table.revocations.revoke_user(7, time.time())
        proxy.table.replace([proxy.route()], session="s1")
        proxy.table.replace([], session="s2")
        await client.send(masked(TEXT, b"still here"))
        assert await client.frame() == (LAST | TEXT, b"still here")


async def test_37_public_app_is_open_until_made_private(public: RunningProxy) -> None:
    async with connected(public.port) as client:
        assert seen(await client.ask(request()))["size"] == 0
        assert (await client.ask(request("POST", Origin="http://evil.example"))).status == 403
    async with connected(public.port) as client:
        await client.send(handshake())
        assert (await client.head()).status == 101
        public.change(is_public=False, epoch=2)
        await client.until_closed()
    async with connected(public.port) as client:
        assert (await client.ask(request())).status == 401


async def test_39_reused_address_is_reached_by_its_new_name_only(proxy: RunningProxy) -> None:
    async with connected(proxy.port) as client:
        seen(await client.ask(request(**log_in())))
        proxy.withdraw()
        proxy.table.replace([proxy.route(label="echo--s2", session="s2")])
        assert (await client.ask(request(**log_in()))).status == (421 if proxy.names else 410)


async def test_39_endpoint_unknown_to_gateway_is_gone() -> None:
    async with running("gateway") as far:
        far.planes[1].authorizer.table.replace([])
        async with connected(far.port) as client:
            reply = await client.ask(request(**log_in()))
            assert (reply.status, b'href="/.gp/again"' in reply.body) == (410, True)
            again = await client.ask(request("GET", "/.gp/again", **log_in()))
            assert (again.status, again.all("location")) == (303, [f"{SITE.launch_url('echo--s1')}?stopped"])


async def test_forged_callback_is_refused(proxy: RunningProxy) -> None:
    target = "/.gp/callback?" + "&".join(["t=x"] * 50)
    async with connected(proxy.port) as client:
        reply = await client.ask(request("GET", target, Cookie="gp_app_state=" + "n" * 43))
    assert reply.status == 403


async def test_many_pipelined_requests_are_answered_in_order(proxy: RunningProxy) -> None:
    async with connected(proxy.port) as client:
        await client.send(request("GET", "/x") * 500)
        for _ in range(500):
            reply = await client.head()
            await client.body(reply)
            assert reply.status == 401


async def test_expired_cookie_aborts_its_connections(proxy: RunningProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected(proxy.port) as client:
        expires_at = time.time() + 3600
        await client.send(handshake(**log_in(expires_at=expires_at)))
        assert (await client.head()).status == 101
        monkeypatch.setattr(time, "time", lambda: expires_at)
        await client.until_closed()


async def test_connections_per_endpoint_are_limited() -> None:
    async with running("direct", ProxyLimits(connections_per_endpoint=2)) as full:
        async with connected(full.port) as one, connected(full.port) as two:
            for client in (one, two):
                await client.send(handshake(**log_in()))
                assert (await client.head()).status == 101
            async with connected(full.port) as third:
                assert (await third.ask(request(**log_in()))).status == 503
        async with asyncio.timeout(SECONDS):
            while full.planes[0].connections:
                await asyncio.sleep(0.01)
        async with connected(full.port) as third:
            assert (await third.ask(request(**log_in()))).status == 200


async def test_only_anonymous_connections_are_limited_by_address() -> None:
    async with (
        running("direct", ProxyLimits(connections_per_anonymous_address=1), is_public=True) as full,
        connected(full.port) as one,
    ):
        await one.send(handshake())
        assert (await one.head()).status == 101
        async with connected(full.port) as two:
            assert (await two.ask(request())).status == 429
        async with connected(full.port) as three:
            assert (await three.ask(request(**log_in()))).status == 200


async def test_incomplete_header_section_times_out() -> None:
    async with running("direct", ProxyLimits(head_seconds=0.1)) as slow, connected(slow.port) as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: ")
        assert (await client.ended()).startswith(b"HTTP/1.1 408")
        async with connected(slow.port) as silent:
            assert await silent.ended() == b""


async def test_missing_response_times_out() -> None:
    async with running("direct", ProxyLimits(response_seconds=0.1)) as slow, connected(slow.port) as client:
        assert (await client.ask(request("GET", "/think", **log_in()))).status == 504
        await slow.app.until(lambda: slow.app.connections == 0)


async def test_request_on_closed_idle_upstream_is_retried(proxy: RunningProxy) -> None:
    async with connected(proxy.port) as client:
        assert (await client.ask(request("GET", "/once", **log_in()))).body == b"ok"
        assert seen(await client.ask(request(**log_in())))["size"] == 0
    assert proxy.app.accepted == 2


async def test_request_with_effects_is_not_retried(app_proxy: RunningProxy) -> None:
    async with connected(app_proxy.port) as client:
        assert (await client.ask(request("GET", "/once", **log_in()))).body == b"ok"
        reply = await client.ask(request("POST", **log_in()))
    assert (reply.status, app_proxy.app.accepted) == (502, 1)


async def test_gateway_refuses_requests_without_token() -> None:
    async with running("gateway") as running_:
        known = running_.table.get("echo--s1")
        assert known
        port = urlsplit(known.gateway).port
        assert port
        async with connected(port) as client:
            assert (await client.ask(request(**log_in()))).status == 403


async def test_39_route_that_is_late_is_waited_for(app_proxy: RunningProxy) -> None:
    plane = app_proxy.planes[-1]  # of the gateway, where there is one
    table, known = plane.authorizer.table, list(plane.authorizer.table)
    table.replace([])

    async def read(session: str) -> None:
        table.replace(known, session=session)

    table.reader = read
    async with connected(app_proxy.port) as client:
        fetched = await client.ask(request("GET", "/echo", Sec_Fetch_Mode="cors", **log_in()))
        assert fetched.status == 410
    async with connected(app_proxy.port) as client:
        reply = await client.ask(request("GET", "/echo?a=1", Sec_Fetch_Mode="navigate", **log_in()))
        assert (reply.status, reply.all("location")) == (303, ["/echo?a=1"])
        assert (await client.ask(request("GET", "/echo?a=1", **log_in()))).status == 200
