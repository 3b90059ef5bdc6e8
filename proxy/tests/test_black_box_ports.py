"""The cases of the black-box table that matter where an app has a port of the platform's own host name for an origin.

Browsers send the cookies of a host to all of its ports and take them for one site, so that here nothing but names of
cookies, `Origin` and `Host` keeps apps apart. The portable proxy serves no ports.
"""

from collections.abc import AsyncIterator
from urllib.parse import parse_qs, urlsplit

import pytest
import pytest_asyncio

from proxy.http.headers import RequestHead
from proxy.http.responses import LocalResponse
from proxy.tests.black_box import seen, seen_headers
from proxy.tests.servers import WAYS, RunningProxy, running_by_port
from proxy.tests.site import KEYS, grant
from proxy.tests.wire import connected, handshake, request

PLATFORM = "127.0.0.1:8000"
OTHER_PORT = "127.0.0.1:10999"  # of another app, or of any program on the platform's machine


@pytest_asyncio.fixture(params=WAYS)
async def proxy(request: pytest.FixtureRequest) -> AsyncIterator[RunningProxy]:
    """A running proxy with an app at a port of its own."""
    async with running_by_port(request.param) as running:
        yield running


def host(proxy: RunningProxy) -> str:
    return f"127.0.0.1:{proxy.port}"


def ask(proxy: RunningProxy, method: str = "GET", target: str = "/echo", **headers: str) -> bytes:
    return request(method, target, b"", host(proxy), **headers)


def log_in(proxy: RunningProxy, **changes: object) -> dict[str, str]:
    """Return the headers of a user who is logged in at the proxy's port."""
    return {"Cookie": f"gp_app_{proxy.port}={grant(**changes).to_cookie(KEYS)}"}


async def test_owner_is_forwarded_without_cookies_of_others(
    proxy: RunningProxy,
) -> None:
    others = (
        "gp_session=s; gp_csrf=c; gp_share=h; __Host-gp_session=s; gp_app_10999=a; gp_app_10999_state=n; gp_session"
    )
    async with connected(proxy.port) as client:
        own = log_in(proxy)["Cookie"]
        reply = await client.ask(ask(proxy, Cookie=f"keep=me; {others}; {own}; too=1"))
    headers = dict(seen_headers(reply))
    assert (headers["cookie"], headers["host"]) == ("keep=me; too=1", host(proxy))
    assert headers["x-forwarded-host"] == host(proxy)


async def test_cookie_of_another_app_is_refused(proxy: RunningProxy) -> None:
    other, own = grant(label="other--s1").to_cookie(KEYS), grant().to_cookie(KEYS)
    for presented in (f"gp_app_{proxy.port}={other}", f"gp_app_10999={own}", f"gp_app={own}", f"gp_session={own}"):
        async with connected(proxy.port) as client:
            assert (await client.ask(ask(proxy, Cookie=presented))).status == 401
            page = await client.ask(ask(proxy, Cookie=presented, Sec_Fetch_Mode="navigate"))
            assert (page.status, page.all("location")[0].split("?")[0]) == (303, f"http://{PLATFORM}/apps/authorize")
        async with connected(proxy.port) as client:
            assert (await client.ask(handshake("/ws", host(proxy), Cookie=presented))).status == 401
    assert proxy.app.accepted == 0


async def test_websocket_from_another_port_is_refused(proxy: RunningProxy) -> None:
    own = host(proxy)
    foreign = [f"http://{each}" for each in (OTHER_PORT, PLATFORM, "127.0.0.1", f"localhost:{proxy.port}")]
    for origin in (*foreign, f"https://{own}", f"http://{own}0", "null", ""):
        async with connected(proxy.port) as client:
            assert (await client.ask(handshake("/ws", own, Origin=origin, **log_in(proxy)))).status == 403
    assert proxy.app.accepted == 0
    async with connected(proxy.port) as client:
        await client.send(handshake("/ws", own, **log_in(proxy)))
        assert (await client.head()).status == 101


async def test_requests_from_another_port_are_refused(proxy: RunningProxy) -> None:
    same_site = {"Sec_Fetch_Site": "same-site"}
    async with connected(proxy.port) as client:
        for headers in ({"Origin": f"http://{OTHER_PORT}"}, {"Origin": f"http://{PLATFORM}"}, same_site):
            assert (await client.ask(ask(proxy, "POST", **headers, **log_in(proxy)))).status == 403
        for mode in ("no-cors", "cors"):
            assert (await client.ask(ask(proxy, Sec_Fetch_Mode=mode, **same_site, **log_in(proxy)))).status == 403
        assert proxy.app.accepted == 0
        own = {"Origin": f"http://{host(proxy)}", "Sec_Fetch_Site": "same-origin"}
        assert (await client.ask(ask(proxy, "POST", **own, **log_in(proxy)))).status == 200


async def test_app_cannot_set_cookies_of_others(
    proxy: RunningProxy,
) -> None:
    async with connected(proxy.port) as client:
        reply = await client.ask(ask(proxy, "GET", "/ours", **log_in(proxy)))
    assert reply.all("set-cookie") == ["own=1; Path=/"]


async def test_responses_are_not_cached_for_the_next_app(proxy: RunningProxy) -> None:
    async with connected(proxy.port) as client:
        reply = await client.ask(ask(proxy, "GET", "/kept", **log_in(proxy)))
        assert (reply.all("cache-control"), reply.all("expires")) == (["no-store"], [])
        assert (reply.all("nel"), reply.all("report-to")) == ([], [])
        dialled = len(proxy.app.requests)
        worker = ask(proxy, "GET", "/echo", Service_Worker="script", Sec_Fetch_Site="same-origin", **log_in(proxy))
        assert (await client.ask(worker)).status == 403
    assert len(proxy.app.requests) == dialled


async def test_only_the_host_of_the_port_is_served(proxy: RunningProxy) -> None:
    port = proxy.port
    names = [OTHER_PORT, PLATFORM, "127.0.0.1", f"localhost:{port}", f"evil.example:{port}", f"127.0.0.1.:{port}"]
    for name in (*names, f"echo--s1.apps.localhost:{port}", f"[::1]:{port}", "container"):
        async with connected(port) as client:
            assert (await client.ask(request("GET", "/echo", b"", name, **log_in(proxy)))).status == 421, name
    for name in ("", f"127.0.0.1:0{port}", f"{host(proxy)}, {OTHER_PORT}", f"a@{host(proxy)}"):
        async with connected(port) as client:
            assert (await client.ask(request("GET", "/echo", b"", name, **log_in(proxy)))).status == 400, name
    assert proxy.app.accepted == 0


async def test_ticket_is_valid_once_at_its_port(proxy: RunningProxy) -> None:
    async with connected(proxy.port) as client:
        begun = await client.ask(ask(proxy, "GET", "/lab?x=1", Sec_Fetch_Mode="navigate"))
        kept = begun.all("set-cookie")[0].partition(";")[0]
        assert kept.startswith(f"gp_app_{proxy.port}_state=")
        asked = parse_qs(urlsplit(begun.all("location")[0]).query)
        proxy.control_plane.tickets["t1", "echo--s1", asked["s"][0]] = (grant(), asked["next"][0])
        elsewhere = kept.replace(str(proxy.port), "10999")
        for presented in ("", elsewhere):
            assert (await client.ask(ask(proxy, "GET", "/.gp/callback?t=t1", Cookie=presented))).status == 403
        arrived = await client.ask(ask(proxy, "GET", "/.gp/callback?t=t1", Cookie=kept))
        assert (arrived.status, arrived.all("location")) == (303, ["/lab?x=1"])
        got = arrived.all("set-cookie")[0].partition(";")[0]
        assert got.startswith(f"gp_app_{proxy.port}=")
        assert seen(await client.ask(ask(proxy, Cookie=got)))["size"] == 0
        forgotten = await client.ask(ask(proxy, "GET", "/.gp/logout", Cookie=got))
        assert forgotten.all("set-cookie")[0].startswith(f"gp_app_{proxy.port}=; Path=/; Max-Age=0;")


async def test_reassigned_port_refuses_earlier_cookies(proxy: RunningProxy) -> None:
    async with connected(proxy.port) as client:
        assert seen(await client.ask(ask(proxy, **log_in(proxy))))["size"] == 0
        proxy.table.replace([proxy.route(label="other--s2", session="s2", listen_port=proxy.port)])
        assert (await client.ask(ask(proxy, **log_in(proxy)))).status == 401
        proxy.table.replace([])
        assert (await client.ask(ask(proxy, **log_in(proxy)))).status == 410


async def test_connections_are_aborted_when_app_loses_its_port(proxy: RunningProxy) -> None:
    async with connected(proxy.port) as client:
        await client.send(handshake("/ws", host(proxy), **log_in(proxy)))
        assert (await client.head()).status == 101
        proxy.table.replace([proxy.route(listen_port=None)])
        await client.until_closed()
    async with connected(proxy.port) as client:
        assert (await client.ask(ask(proxy, **log_in(proxy)))).status == 410


async def test_public_app_accepts_changes_from_its_own_pages_only(proxy: RunningProxy) -> None:
    proxy.table.replace([proxy.route(is_public=True, listen_port=proxy.port)])
    async with connected(proxy.port) as client:
        assert seen(await client.ask(ask(proxy, Cookie="gp_session=s")))["size"] == 0
        assert (await client.ask(ask(proxy, "POST", Origin=f"http://{OTHER_PORT}"))).status == 403


async def test_shared_port_serves_no_apps(proxy: RunningProxy) -> None:
    who = log_in(proxy)
    pairs = [(b"Host", host(proxy).encode()), (b"Cookie", who["Cookie"].encode())]
    async with connected(proxy.port) as client:
        assert (await client.ask(ask(proxy, **who))).status == 200
    authorize_and_run = proxy.planes[0].authorizer.authorize(RequestHead(b"GET", b"/", pairs), "192.0.2.1")
    assert isinstance(authorize_and_run, LocalResponse)
    assert authorize_and_run.status == 421
