"""Pages of other origins at a service's address: preflights, what they may read, and that no cookie helps them."""

from collections.abc import Mapping

import pytest

from proxy.tests.black_box import seen_headers
from proxy.tests.services import BEARER, HOST, RunningService, running_service
from proxy.tests.site import SITE, cookie
from proxy.tests.wire import Reply, connected, handshake, request

pytestmark = pytest.mark.loopback

PAGE = "https://page.example"
OWN = f"http://{HOST}"
PREFLIGHT = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "authorization,content-type"}
COOKIE = {"Cookie": cookie(label="chat--d1")}


async def ask(
    running: RunningService, method: str = "GET", target: str = "/echo", body: bytes = b"", /, **headers: str
) -> Reply:
    """Return the response to one request over a connection of its own; no token is sent unless it is given."""
    async with connected(running.port) as client:
        has_body = method not in ("HEAD", "OPTIONS") or target != "/echo"
        return await client.ask(request(method, target, body, HOST, **headers), has_body=has_body)


def rules(reply: Reply) -> Mapping[str, str]:
    """Return what a response says of other origins, by the names of its headers behind Access-Control-."""
    prefix = "access-control-"
    found = [(name.removeprefix(prefix), value) for name, value in reply.headers if name.startswith(prefix)]
    assert len(dict(found)) == len(found), found
    return dict(found)


async def test_a_preflight_is_answered_for_allowed_origins() -> None:
    async with running_service(1, allowed_origins=(PAGE,)) as running:
        reply = await ask(running, "OPTIONS", Origin=PAGE, **PREFLIGHT)
        assert reply.status == 204
        assert rules(reply) == {
            "allow-origin": PAGE,
            "allow-methods": "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS",
            "allow-headers": "authorization,content-type",
            "max-age": "600",
        }
        assert "Origin" in reply.all("vary")[0]
        assert running.served() == [0]


@pytest.mark.parametrize(
    "origin", ["https://other.example", "http://page.example", f"{PAGE}:444", f"{PAGE}.evil.example", "null", "*"]
)
async def test_a_preflight_of_another_origin_is_refused(origin: str) -> None:
    async with running_service(1, allowed_origins=(PAGE,), is_public=True) as running:
        reply = await ask(running, "OPTIONS", "/v1", Origin=origin, **PREFLIGHT)
        assert (reply.status, rules(reply), running.served()) == (403, {}, [0])


@pytest.mark.parametrize("asked", ["x" * 5000, "a b", "a,,b", "a: b", "é"])
async def test_a_preflight_asks_for_names_of_headers(asked: str) -> None:
    headers = PREFLIGHT | {"Access_Control_Request_Headers": asked}
    async with running_service(1, allowed_origins=("*",)) as running:
        assert (await ask(running, "OPTIONS", "/v1", Origin=PAGE, **headers)).status == 400


async def test_an_allowed_page_reads_what_a_token_opens() -> None:
    async with running_service(1, allowed_origins=(PAGE,)) as running:
        reply = await ask(running, "POST", "/echo", b"{}", Origin=PAGE, Sec_Fetch_Site="cross-site", **BEARER)
        assert reply.status == 200
        assert rules(reply) == {"allow-origin": PAGE, "expose-headers": "*"}
        assert reply.all("vary") == ["Origin"]


async def test_an_allowed_page_uses_a_public_service_without_a_token() -> None:
    async with running_service(1, allowed_origins=(PAGE,), is_public=True) as running:
        allowed = {"Origin": PAGE, "Sec_Fetch_Site": "cross-site"}
        assert (await ask(running, "POST", "/echo", b"{}", **allowed)).status == 200
        async with connected(running.port) as client:
            await client.send(handshake("/ws", HOST, **allowed))
            assert (await client.head()).status == 101


async def test_any_origin_is_said_to_be_any() -> None:
    async with running_service(1, allowed_origins=("*",)) as running:
        for origin in (PAGE, "null"):
            reply = await ask(running, Origin=origin, **BEARER)
            assert (reply.status, rules(reply)["allow-origin"]) == (200, "*")


async def test_other_pages_read_nothing() -> None:
    async with running_service(1, allowed_origins=(PAGE,)) as running:
        reply = await ask(running, Origin="https://other.example", **BEARER)
        assert (reply.status, rules(reply), reply.all("vary")) == (200, {}, ["Origin"])


@pytest.mark.parametrize("is_public", [False, True])
async def test_what_a_replica_says_of_origins_is_dropped(*, is_public: bool) -> None:
    async with running_service(1, is_public=is_public) as running:
        reply = await ask(running, "GET", "/cors", Origin="https://other.example", **BEARER)
        assert (reply.status, rules(reply)) == (200, {})
        assert (await ask(running, "GET", "/cors", **BEARER)).all("vary") == ["Accept"]
        running.change(allowed_origins=(PAGE,))
        reply = await ask(running, "GET", "/cors", Origin=PAGE, **BEARER)
        assert rules(reply) == {"allow-origin": PAGE, "expose-headers": "*"}
        assert reply.all("vary") == ["Accept", "Origin"]
        assert (await ask(running, "GET", "/cors", **BEARER)).all("vary") == ["Accept", "Origin"]


@pytest.mark.parametrize("origins", [(PAGE,), ("*",), ()])
async def test_a_cookie_opens_nothing_across_origins(origins: tuple[str, ...]) -> None:
    async with running_service(1, allowed_origins=origins) as running:
        for method in ("GET", "HEAD", "POST", "OPTIONS"):
            reply = await ask(running, method, "/echo", Origin=PAGE, **COOKIE)
            assert reply.status == (403 if method == "POST" and not origins else 401)
        assert running.served() == [0]
        assert (await ask(running, "POST", "/echo", b"{}", Origin=OWN, **COOKIE)).status == 200


async def test_no_cookie_of_a_foreign_page_reaches_a_replica() -> None:
    async with running_service(1, allowed_origins=(PAGE,), is_public=True) as running:
        own = {"Cookie": f"own=1; {cookie(label='chat--d1')}"}
        names = {name for name, _ in seen_headers(await ask(running, Origin=PAGE, **own))}
        assert "cookie" not in names
        reply = await ask(running, Origin=OWN, **own)
        assert ("cookie", "own=1") in seen_headers(reply)


async def test_reserved_paths_are_closed_to_other_origins() -> None:
    async with running_service(1, allowed_origins=(PAGE,), is_public=True) as running:
        reply = await ask(running, "POST", "/.gp/logout", Origin=PAGE, **COOKIE)
        assert (reply.status, reply.all("set-cookie")) == (403, [])


async def test_the_platforms_own_page_needs_a_token() -> None:
    platform = {"Origin": SITE.platform_url}
    async with running_service(1) as running:
        assert (await ask(running, "OPTIONS", "/echo", **platform, **PREFLIGHT)).status == 204
        reply = await ask(running, "POST", "/echo", b"{}", **platform, **BEARER)
        assert (reply.status, rules(reply)["allow-origin"]) == (200, SITE.platform_url)
        reply = await ask(running, "POST", "/echo", b"{}", **platform, **COOKIE)
        assert (reply.status, rules(reply)) == (403, {})
        running.change(is_public=True)
        assert (await ask(running, "POST", "/echo", b"{}", **platform)).status == 403


async def test_refusals_can_be_read_by_allowed_pages() -> None:
    async with running_service(1, allowed_origins=(PAGE,)) as running:
        wrong = {"Authorization": f"Bearer gpd_{'w' * 43}"}
        for headers, change, status in (
            ({}, {}, 401),
            (wrong, {}, 401),
            (BEARER, {"takes_requests": False}, 503),
        ):
            running.change_replica(1, **change)
            reply = await ask(running, Origin=PAGE, **headers)
            assert (reply.status, rules(reply)["allow-origin"]) == (status, PAGE)


async def test_options_of_programs_reach_the_replica() -> None:
    async with running_service(1) as running:
        for headers in ({}, {"Origin": OWN}):
            assert (await ask(running, "OPTIONS", "/v1", **headers, **PREFLIGHT, **BEARER)).status == 200
        assert running.served() == [2]
