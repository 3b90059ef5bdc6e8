"""The login at an app's origin, and the other reserved paths."""

import json
import re
import time
from urllib.parse import parse_qs, urlsplit

import pytest

from proxy.authorization import login_flow
from proxy.authorization.authorizer import BrowserAuthorizer
from proxy.authorization.decisions import Decision, ForwardDecision
from proxy.authorization.signing import Grant, digest
from proxy.http.headers import RequestHead
from proxy.http.responses import LocalResponse
from proxy.routes import Route, RouteTable
from proxy.site import Site
from proxy.tests.site import HOST, KEYS, FakeControlPlane, authorizer, cookie, grant, route


def values(response: LocalResponse, name: str) -> list[str]:
    """Return the values of a header of a response."""
    return [value.decode() for key, value in response.headers if key.decode() == name]


async def serve(authorizer_: BrowserAuthorizer, decision: Decision) -> LocalResponse:
    """Return the response to a request that is not forwarded."""
    assert not isinstance(decision, LocalResponse | ForwardDecision)
    return await authorizer_.serve(decision)


async def visit(
    authorizer_: BrowserAuthorizer, target: str, cookies: str = "", port: int | None = None
) -> LocalResponse:
    """Return the data plane's own response to a navigation."""
    host = HOST if port is None else HOST.replace("8000", str(port))
    pairs = [(b"Host", host.encode()), (b"Cookie", cookies.encode()), (b"Sec-Fetch-Mode", b"navigate")]
    decision = authorizer_.authorize(RequestHead(b"GET", target.encode(), pairs), "192.0.2.1", port)
    response = decision if isinstance(decision, LocalResponse) else await serve(authorizer_, decision)
    return response


async def begin(
    authorizer_: BrowserAuthorizer, target: str = "/lab?x=1", port: int | None = None
) -> tuple[str, dict[str, str]]:
    """Return the state cookie and the query of the redirect to the platform."""
    response = await visit(authorizer_, target, port=port)
    kept = re.match(
        r"(gp_app_state=[^;]+); Path=/; Max-Age=120; HttpOnly; SameSite=Lax$", values(response, "Set-Cookie")[0]
    )
    assert kept
    asked = parse_qs(urlsplit(values(response, "Location")[0]).query)
    return kept[1], {name: each[0] for name, each in asked.items()}


def put_ticket(control_plane: FakeControlPlane, state: str, granted: Grant, path: str = "/lab?x=1") -> None:
    """Make the ticket `t1` valid for a grant."""
    control_plane.tickets["t1", "echo--s1", state] = (granted, path)


async def test_ticket_is_exchanged_for_cookie_once() -> None:
    control_plane = FakeControlPlane()
    authorizer_ = authorizer(control_plane=control_plane)
    kept, asked = await begin(authorizer_)
    assert asked == {"h": "echo--s1", "s": digest(kept.removeprefix("gp_app_state=")), "next": "/lab?x=1"}
    put_ticket(control_plane, asked["s"], grant())
    arrived = await visit(authorizer_, "/.gp/callback?t=t1", kept)
    assert (arrived.status, values(arrived, "Location")) == (303, ["/lab?x=1"])
    assert values(arrived, "Cache-Control") == ["no-store"]
    assert values(arrived, "Referrer-Policy") == ["no-referrer"]
    made, forgotten = values(arrived, "Set-Cookie")
    assert re.fullmatch(r"gp_app=[^;]+; Path=/; Max-Age=3[56][0-9][0-9]; HttpOnly; SameSite=Lax", made)
    assert forgotten.startswith("gp_app_state=; Path=/; Max-Age=0;")
    granted = Grant.from_cookie(KEYS, made.partition(";")[0].removeprefix("gp_app="))
    assert (granted.label, granted.user) == ("echo--s1", 7)
    again = await visit(authorizer_, "/.gp/callback?t=t1", kept)
    assert (again.status, values(again, "Set-Cookie")) == (403, [])


@pytest.mark.parametrize("presented", ["", "gp_app_state=", f"gp_app_state={'x' * 43}", "gp_app_state=a b"])
async def test_ticket_is_invalid_in_another_browser(presented: str) -> None:
    control_plane = FakeControlPlane()
    authorizer_ = authorizer(control_plane=control_plane)
    _, asked = await begin(authorizer_)
    put_ticket(control_plane, asked["s"], grant())
    response = await visit(authorizer_, "/.gp/callback?t=t1", presented)
    assert (response.status, values(response, "Set-Cookie")) == (403, [])


@pytest.mark.parametrize("granted", [grant(label="other--s1"), grant(epoch=2), grant(expires_at=time.time())])
async def test_grant_for_another_endpoint_sets_no_cookie(granted: Grant) -> None:
    control_plane = FakeControlPlane()
    authorizer_ = authorizer(control_plane=control_plane)
    kept, asked = await begin(authorizer_)
    put_ticket(control_plane, asked["s"], granted)
    assert (await visit(authorizer_, "/.gp/callback?t=t1", kept)).status == 403


@pytest.mark.parametrize("path", ["//evil.example", "/\\evil.example", "http://evil.example", "", "/a\r\nb", "lab"])
async def test_redirect_stays_on_the_origin(path: str) -> None:
    control_plane = FakeControlPlane()
    authorizer_ = authorizer(control_plane=control_plane)
    kept, asked = await begin(authorizer_, "//evil.example")
    assert asked["next"] == "/"
    put_ticket(control_plane, asked["s"], grant(), path)
    assert (await visit(authorizer_, "/.gp/callback?t=t1", kept)).status == 403


async def test_two_concurrent_logins_succeed() -> None:
    authorizer_ = authorizer()
    kept, asked = await begin(authorizer_)
    second = await visit(authorizer_, "/tree", kept)
    assert f"s={asked['s']}" in values(second, "Location")[0]
    assert values(second, "Set-Cookie")[0].startswith(f"{kept};")


async def test_login_returns_to_its_own_port() -> None:
    control_plane = FakeControlPlane()
    authorizer_ = authorizer(route(listen_port=10205), control_plane=control_plane)
    kept, asked = await begin(authorizer_, "/lab", port=10205)
    put_ticket(control_plane, asked["s"], grant(), "/lab")
    arrived = await visit(authorizer_, "/.gp/callback?t=t1", kept)
    assert values(arrived, "Location") == ["http://echo--s1.apps.localhost:10205/lab"]
    put_ticket(control_plane, asked["s"], grant(), "/lab")
    authorizer_.table.replace([route()])
    assert values(await visit(authorizer_, "/.gp/callback?t=t1", kept), "Location") == ["/lab"]


async def test_cookie_lifetime_is_limited() -> None:
    control_plane = FakeControlPlane()
    authorizer_ = authorizer(control_plane=control_plane)
    kept, asked = await begin(authorizer_)
    put_ticket(control_plane, asked["s"], grant(expires_at=time.time() + 10**6))
    made = values(await visit(authorizer_, "/.gp/callback?t=t1", kept), "Set-Cookie")[0]
    assert "Max-Age=43200;" in made
    assert Grant.from_cookie(KEYS, made.partition(";")[0].removeprefix("gp_app=")).expires_at < time.time() + 43201


async def test_logout_deletes_the_cookie() -> None:
    response = await visit(authorizer(), "/.gp/logout", cookie())
    assert values(response, "Set-Cookie") == ["gp_app=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax"]


@pytest.mark.parametrize("is_known", [True, False])
async def test_page_of_stopped_app_links_to_launcher(is_known: bool) -> None:
    page = "http://platform.localhost:8000/sessions/s1/apps/echo/"
    authorizer_ = authorizer()
    assert values(await visit(authorizer_, "/.gp/again", cookie() if is_known else ""), "Location") == [
        f"{page}?stopped"
    ]
    authorizer_.table.replace([])
    gone = await visit(authorizer_, "/")
    assert (gone.status, f'href="{page}"'.encode() in gone.body) == (410, True)


async def test_status_requires_access() -> None:
    assert (await visit(authorizer(), "/.gp/status")).status == 401
    response = await visit(authorizer(), "/.gp/status", cookie())
    assert (response.status, b'"app": "echo--s1"' in response.body) == (200, True)
    assert b'"expires_at": null' in (await visit(authorizer(route(is_public=True)), "/.gp/status")).body


def late(table: RouteTable, *arriving: Route) -> None:
    """Make the routes of `s1` arrive when they are read again."""

    async def read(session: str) -> None:
        table.replace([each for each in arriving if each.session == session], session=session)

    table.reader = read


async def test_page_of_app_whose_route_is_late_is_opened() -> None:
    authorizer_ = authorizer()
    authorizer_.table.replace([])
    late(authorizer_.table, route())
    response = await visit(authorizer_, "/lab?x=1")
    assert (response.status, values(response, "Location")) == (303, ["/lab?x=1"])
    assert "/apps/authorize?" in values(await visit(authorizer_, "/lab?x=1"), "Location")[0]


async def test_unknown_app_is_gone_after_a_second_read() -> None:
    authorizer_ = authorizer()
    authorizer_.table.replace([])
    late(authorizer_.table)
    assert (await visit(authorizer_, "/")).status == 410


@pytest.mark.parametrize("known", [[], [route(epoch=1)]])
async def test_ticket_is_exchanged_though_the_route_is_late(known: list[Route]) -> None:
    control_plane = FakeControlPlane()
    authorizer_ = authorizer(control_plane=control_plane)
    kept, asked = await begin(authorizer_)
    put_ticket(control_plane, asked["s"], grant(epoch=2))
    authorizer_.table.replace(known)
    late(authorizer_.table, route(epoch=2))
    assert (await visit(authorizer_, "/.gp/callback?t=t1", kept)).status == 303


async def test_concurrent_logins_at_a_port_share_their_state() -> None:
    authorizer_ = authorizer(route(listen_port=10205))
    kept, asked = await begin(authorizer_, "/lab", port=10205)
    assert re.fullmatch(r"gp_app_state=[A-Za-z0-9_-]{43}\.10205", kept)
    second = await visit(authorizer_, "/tree", kept, port=10205)
    assert f"s={asked['s']}" in values(second, "Location")[0]
    assert values(second, "Set-Cookie")[0].startswith(f"{kept};")
    elsewhere = await visit(authorizer_, "/tree", kept)
    assert f"s={asked['s']}" not in values(elsewhere, "Location")[0]


@pytest.mark.parametrize("target", ["/" + "x" * 1990, "/" + "x" * 1991])
async def test_only_a_short_path_is_returned_to(target: str) -> None:
    _, asked = await begin(authorizer(), target)
    assert asked["next"] == (target if len(target) == 1991 else "/")


async def test_a_ticket_is_fetched_and_nothing_else() -> None:
    authorizer_ = authorizer()
    for method, status in ((b"GET", 403), (b"HEAD", 405), (b"POST", 405)):
        decision = authorizer_.authorize(RequestHead(method, b"/.gp/callback?t=t1", [(b"Host", HOST.encode())]), "")
        assert (await serve(authorizer_, decision)).status == status


@pytest.mark.parametrize("query", ["", "t=", "t=a&b=c", "x=1&t=t1", "t=" + "a" * 101, "t=a%20b"])
async def test_a_query_that_is_no_ticket_is_refused(query: str) -> None:
    control_plane = FakeControlPlane()
    authorizer_ = authorizer(control_plane=control_plane)
    kept, asked = await begin(authorizer_)
    put_ticket(control_plane, asked["s"], grant())
    assert (await visit(authorizer_, f"/.gp/callback?{query}", kept)).status == 403
    assert (await visit(authorizer_, "/.gp/callback?t=t1", f"{kept}; {kept}")).status == 403
    assert (await visit(authorizer_, "/.gp/callback?t=t1", kept)).status == 303


async def test_a_ticket_for_an_app_that_went_meanwhile_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    control_plane = FakeControlPlane()
    authorizer_ = authorizer(control_plane=control_plane)
    kept, asked = await begin(authorizer_)
    put_ticket(control_plane, asked["s"], grant())

    async def gone(ticket: str, label: str, state_digest: str) -> tuple[Grant, str]:
        authorizer_.table.replace([])
        return grant(), "/"

    monkeypatch.setattr(control_plane, "redeem", gone)
    assert (await visit(authorizer_, "/.gp/callback?t=t1", kept)).status == 403


async def test_the_status_says_until_when() -> None:
    response = await visit(authorizer(now=lambda: 1000.0), "/.gp/status", cookie(issued_at=900.0, expires_at=1010.9))
    assert (json.loads(response.body)["expires_at"], values(response, "Content-Type")) == (1010, ["application/json"])


async def test_looks_are_remembered_within_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_flow, "MAX_LOOKS", 2)
    control_plane = FakeControlPlane()
    routes = [route(label=f"a--s{number}", session=f"s{number}", is_public=True) for number in range(3)]
    authorizer_ = authorizer(*routes, control_plane=control_plane)
    for number in (0, 1, 1, 0, 2, 0):
        pairs = [(b"Host", HOST.replace("echo--s1", f"a--s{number}").encode())]
        await serve(authorizer_, authorizer_.authorize(RequestHead(b"GET", b"/.gp/status?look", pairs), ""))
    assert control_plane.looks == ["a--s0", "a--s1", "a--s2", "a--s0"]


async def test_cookies_of_a_site_with_tls_are_secure() -> None:
    site = Site(platform_url="https://gpu.example.org", apps_domain="apps.localhost")
    pairs = [(b"Host", b"echo--s1.apps.localhost"), (b"Sec-Fetch-Mode", b"navigate")]
    decision = authorizer(site=site).authorize(RequestHead(b"GET", b"/", pairs), "")
    assert isinstance(decision, LocalResponse)
    assert values(decision, "Set-Cookie")[0].endswith("; HttpOnly; SameSite=Lax; Secure")
