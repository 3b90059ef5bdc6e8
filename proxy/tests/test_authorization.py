"""Authorization of browsers' requests, without a server."""

import time
from ipaddress import ip_network

import pytest

from proxy.authorization import authorizer as authorizer_module
from proxy.authorization.authorizer import BrowserAuthorizer
from proxy.authorization.decisions import Decision, ForwardDecision, Principal
from proxy.authorization.signing import Keys, digest
from proxy.http.headers import Header, RequestHead
from proxy.http.responses import LocalResponse
from proxy.routes import Route
from proxy.site import Site
from proxy.tests.site import (
    BY_PORT,
    GATEWAY_KEY,
    GATEWAY_KEYS,
    HOST,
    LOGIN,
    ORIGIN,
    SITE,
    authorizer,
    cookie,
    route,
)

PEER = "192.0.2.1"
OTHER_KEYS = Keys(["first:another-key-of-16"])
WEBSOCKET = {"Connection": "Upgrade", "Upgrade": "websocket"}


def ask(authorizer_: BrowserAuthorizer, method: str = "GET", target: str = "/x", **headers: str) -> Decision:
    """Authorize a request with these headers; underscores in their names stand for dashes."""
    named = {"Host": HOST} | {name.replace("_", "-"): value for name, value in headers.items()}
    pairs: list[Header] = [(name.encode(), value.encode()) for name, value in named.items()]
    return authorizer_.authorize(RequestHead(method.encode(), target.encode(), pairs), PEER)


def status(decision: Decision) -> int:
    """Return the status of a response, 200 for a request that is forwarded."""
    return decision.status if isinstance(decision, LocalResponse) else 200


def sent(decision: Decision) -> dict[str, str]:
    """Return the headers that reach the app, by lower-case name."""
    assert isinstance(decision, ForwardDecision), decision
    return {name.decode().lower(): value.decode() for name, value in decision.headers}


def header(decision: Decision, name: str) -> str:
    """Return a header of a response."""
    assert isinstance(decision, LocalResponse)
    return {key.decode(): value.decode() for key, value in decision.headers}[name]


def test_owner_is_forwarded_without_platform_cookies() -> None:
    decision = ask(authorizer(), Cookie=f"keep=me; {cookie()}; other=2", Accept="*/*")
    assert sent(decision) == {
        "accept": "*/*",
        "host": HOST,
        "cookie": "keep=me; other=2",
        "x-forwarded-for": PEER,
        "x-forwarded-proto": "http",
        "x-forwarded-host": HOST,
    }
    assert isinstance(decision, ForwardDecision)
    assert decision.to_bytes().startswith(b"GET /x HTTP/1.1\r\n")
    assert decision.to_bytes().endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    "presented",
    [
        "",
        "gp_app=",
        "gp_app=nonsense",
        f"gp_app={'v1.first.' + 'A' * 40 + '.' + 'B' * 43}",
        "gp_app=" + "é",
        cookie(label="other--s1"),
        cookie(epoch=2),
        cookie(expires_at=time.time() - 1),
        cookie().replace("gp_app", "__Host-gp_app"),
        cookie()[:-2],
    ],
)
def test_invalid_cookie_redirects_pages_and_refuses_others(presented: str) -> None:
    for headers in ({"Sec_Fetch_Mode": "navigate"}, {"Accept": "text/html,*/*"}):
        decision = ask(authorizer(), Cookie=presented, **headers)
        assert status(decision) == 303
        assert header(decision, "Location").startswith("http://platform.localhost:8000/apps/authorize?h=echo--s1&s=")
    programs = [{"Accept": "*/*"}, WEBSOCKET, {"Accept": "text/html", **WEBSOCKET}]
    for headers in ({"Sec_Fetch_Mode": "cors", "Accept": "text/html"}, *programs):
        decision = ask(authorizer(), Cookie=presented, **headers)
        assert status(decision) == 401
        assert header(decision, "X-GP-Login") == f"{ORIGIN}/"


def test_post_without_cookie_is_refused_even_as_navigation() -> None:
    assert status(ask(authorizer(), "POST", Sec_Fetch_Mode="navigate")) == 401


def test_cookie_signed_with_foreign_key_is_refused() -> None:
    authorizer_ = authorizer(keys=OTHER_KEYS)
    assert status(ask(authorizer_, Cookie=cookie())) == 401


def test_cached_cookie_is_void_when_its_login_ends() -> None:
    authorizer_ = authorizer()
    presented = cookie()
    assert status(ask(authorizer_, Cookie=presented)) == 200
    authorizer_.table.revocations.revoke_login(digest("of somebody else"), time.time())
    assert status(ask(authorizer_, Cookie=presented)) == 200
    authorizer_.table.revocations.revoke_login(LOGIN, time.time())
    assert status(ask(authorizer_, Cookie=presented)) == 401


def test_cached_cookie_is_void_when_its_user_is_disabled() -> None:
    authorizer_ = authorizer()
    presented = cookie()
    assert status(ask(authorizer_, Cookie=presented)) == 200
    authorizer_.table.revocations.revoke_user(7, time.time())
    assert status(ask(authorizer_, Cookie=presented)) == 401


@pytest.mark.parametrize(("change", "expected"), [([], 410), ([route(epoch=2)], 401), ([route(port=9)], 200)])
def test_cached_principal_is_checked_against_current_route(change: list[Route], expected: int) -> None:
    authorizer_ = authorizer()
    presented = cookie()
    assert status(ask(authorizer_, Cookie=presented)) == 200
    authorizer_.table.replace(change)
    decision = ask(authorizer_, Cookie=presented)
    assert status(decision) == expected
    if isinstance(decision, ForwardDecision):
        assert decision.principal.route == route(port=9)


def test_cached_cookie_expires() -> None:
    clock = [1000.0]
    authorizer_ = authorizer(now=lambda: clock[0])
    presented = cookie(issued_at=900.0, expires_at=1010.0)
    assert status(ask(authorizer_, Cookie=presented)) == 200
    clock[0] = 1010.0
    assert status(ask(authorizer_, Cookie=presented)) == 401


def test_public_app_ignores_invalid_cookies() -> None:
    authorizer_ = authorizer(route(is_public=True))
    for presented in ("", "gp_app=nonsense", cookie(epoch=2)):
        decision = ask(authorizer_, Cookie=presented)
        assert isinstance(decision, ForwardDecision)
        assert (decision.principal.login, decision.principal.user) == ("", 0)
    known = ask(authorizer_, Cookie=cookie())
    assert isinstance(known, ForwardDecision)
    assert known.principal.user == 7


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("nobody--s1.apps.localhost:8000", 410),
        ("apps.localhost:8000", 404),
        ("a.echo--s1.apps.localhost:8000", 404),
        ("ECHO--S1.Apps.Localhost:8000", 200),
        ("127.0.0.1:8000", 421),
        ("[::1]:8000", 421),
        ("localhost:8000", 421),
        ("platform.localhost:8000", 421),
        ("container", 421),
        ("echo--s1.apps.localhost.evil.example", 421),
        ("evil.example/echo--s1.apps.localhost", 400),
        ("evil@echo--s1.apps.localhost", 400),
        ("echo--s1.apps.localhost:8000, x", 400),
        ("", 400),
    ],
)
def test_unknown_hosts_are_refused(host: str, expected: int) -> None:
    assert status(ask(authorizer(), Host=host, Cookie=cookie())) == expected


FOREIGN = ["http://evil.example", "http://other--s1.apps.localhost:8000", "null", f"https://{HOST}", f"{ORIGIN}0", ""]


@pytest.mark.parametrize("origin", FOREIGN)
@pytest.mark.parametrize("is_public", [True, False])
def test_cross_origin_websockets_and_changes_are_refused(origin: str, is_public: bool) -> None:
    authorizer_ = authorizer(route(is_public=is_public))
    assert status(ask(authorizer_, Cookie=cookie(), Origin=origin, **WEBSOCKET)) == 403
    for method in ("POST", "PUT", "DELETE", "PATCH", "PROPFIND"):
        assert status(ask(authorizer_, method, Cookie=cookie(), Origin=origin)) == 403


def test_origins_are_compared_without_case() -> None:
    for host, origin in ((HOST, ORIGIN.upper()), (HOST.upper(), ORIGIN)):
        assert status(ask(authorizer(), "POST", Host=host, Cookie=cookie(), Origin=origin)) == 200


@pytest.mark.parametrize(
    ("site", "expected"), [("same-origin", 200), ("none", 200), ("same-site", 403), ("cross-site", 403), ("new", 403)]
)
def test_cross_site_fetch_metadata_refuses_changes(site: str, expected: int) -> None:
    assert status(ask(authorizer(), "POST", Cookie=cookie(), Origin=ORIGIN, Sec_Fetch_Site=site)) == expected
    assert status(ask(authorizer(), Cookie=cookie(), Sec_Fetch_Site=site, **WEBSOCKET)) == expected


@pytest.mark.parametrize(
    ("mode", "destination", "is_public", "expected"),
    [
        ("navigate", "document", False, 200),
        ("no-cors", "script", False, 403),
        ("cors", "empty", False, 403),
        *(("navigate", name, False, 403) for name in ("iframe", "frame", "embed", "object", "fencedframe")),
        ("no-cors", "image", True, 200),
        ("navigate", "iframe", True, 200),
    ],
)
def test_other_sites_may_only_link_to_private_apps(mode: str, destination: str, is_public: bool, expected: int) -> None:
    fetch = {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": mode, "Sec_Fetch_Dest": destination}
    assert status(ask(authorizer(route(is_public=is_public)), Cookie=cookie(), **fetch)) == expected


@pytest.mark.parametrize(
    ("token", "given", "reaches_the_app"),
    [
        ("", None, None),
        ("", "Basic abc", "Basic abc"),
        ("", "Token ours", None),
        ("", "TOKEN ours", None),
        ("t0", None, "token t0"),
        ("t0", "Basic abc", "token t0"),
    ],
)
def test_app_receives_its_own_token_and_no_platform_token(
    token: str, given: str | None, reaches_the_app: str | None
) -> None:
    headers = {} if given is None else {"Authorization": given}
    decision = ask(authorizer(route(token=token)), Cookie=cookie(), **headers)
    assert sent(decision).get("authorization") == reaches_the_app


@pytest.mark.parametrize(
    ("method", "target", "headers"),
    [
        ("GET", "http://echo--s1.apps.localhost/", {}),
        ("OPTIONS", "*", {}),
        ("GET", "/", {"Upgrade": "h2c", "Connection": "Upgrade"}),
        ("POST", "/", {"Content-Length": "3", "Transfer-Encoding": "chunked"}),
        ("POST", "/", {"Content-Length": "+5"}),
        ("POST", "/", {"Content-Length": ""}),
        ("POST", "/", {"Transfer-Encoding": "xchunked"}),
        ("POST", "/", {"Transfer-Encoding": "gzip, chunked"}),
        ("POST", "/", {"Transfer-Encoding": "identity"}),
        ("POST", "/", {"Expect": "200-ok"}),
        ("POST", "/", WEBSOCKET),
        ("GET", "/", {"Content-Length": "3", **WEBSOCKET}),
    ],
)
def test_ambiguous_requests_are_refused(method: str, target: str, headers: dict[str, str]) -> None:
    decision = ask(authorizer(), method, target, Cookie=cookie(), **headers)
    assert status(decision) == 400
    assert isinstance(decision, LocalResponse)
    assert decision.closes


@pytest.mark.parametrize("address", ["169.254.169.254", "10.0.0.1", "localhost", "::1", ""])
def test_addresses_outside_session_subnets_are_refused(address: str) -> None:
    assert status(ask(authorizer(route(address=address)), Cookie=cookie())) == 502


def test_request_through_gateway_carries_gateway_token() -> None:
    far = route(gateway="http://10.1.1.1:9000", gateway_key=GATEWAY_KEY, address="10.0.0.1")
    decision = ask(authorizer(far), Cookie=cookie())
    assert GATEWAY_KEYS.fields("gateway", sent(decision)["x-gp-gateway"])[0] == "echo--s1"


def test_own_port_serves_only_its_own_app() -> None:
    authorizer_ = authorizer(route(listen_port=10205))
    pairs = [(b"Host", b"echo--s1.apps.localhost:10205"), (b"Cookie", cookie().encode())]
    request = RequestHead(b"GET", b"/", pairs)
    assert status(authorizer_.authorize(request, PEER, listen_port=10205)) == 200
    assert status(authorizer_.authorize(request, PEER, listen_port=10206)) == 421


def test_by_port_cached_principal_is_unknown_at_another_port() -> None:
    first, second = route(listen_port=10205), route(label="other--s2", session="s2", listen_port=10206)
    authorizer_ = authorizer(first, second, site=BY_PORT)
    presented = cookie().replace("gp_app=", "gp_app_10205=")
    pairs = [(b"Host", b"127.0.0.1:10205"), (b"Cookie", presented.encode())]
    request = RequestHead(b"GET", b"/", pairs)
    assert status(authorizer_.authorize(request, PEER, listen_port=10205)) == 200
    for port in (10206, 10207, None):
        assert status(authorizer_.authorize(request, PEER, listen_port=port)) == 421


def test_only_trusted_proxies_name_the_client() -> None:
    pairs = [(b"Host", HOST.encode()), (b"Cookie", cookie().encode()), (b"X-Forwarded-For", b"6.6.6.6, 203.0.113.5")]
    decision = authorizer().authorize(RequestHead(b"GET", b"/", list(pairs)), "127.0.0.1")
    assert sent(decision)["x-forwarded-for"] == "127.0.0.1"
    behind = authorizer(trusted_proxies=[ip_network("127.0.0.1/32")])
    assert (
        sent(behind.authorize(RequestHead(b"GET", b"/", list(pairs)), "127.0.0.1"))["x-forwarded-for"] == "203.0.113.5"
    )
    assert sent(behind.authorize(RequestHead(b"GET", b"/", list(pairs)), PEER))["x-forwarded-for"] == PEER


def test_client_without_address_is_no_trusted_proxy() -> None:
    pairs = [(b"Host", HOST.encode()), (b"Cookie", cookie().encode()), (b"X-Forwarded-For", b"203.0.113.5")]
    behind = authorizer(trusted_proxies=[ip_network("127.0.0.1/32")])
    assert sent(behind.authorize(RequestHead(b"GET", b"/", pairs), ""))["x-forwarded-for"] == ""


@pytest.mark.parametrize(("size", "is_remembered"), [(100, True), (60_000, False)])
def test_principal_cache_is_bounded(size: int, *, is_remembered: bool) -> None:
    public = authorizer(route(is_public=True))
    first, second = (ask(public, Cookie="a=" + "x" * size) for _ in range(2))
    assert isinstance(first, ForwardDecision)
    assert isinstance(second, ForwardDecision)
    assert (first.principal is second.principal) == is_remembered


def test_tls_cookie_names_have_host_prefix() -> None:
    site = Site(platform_url="https://gpu.example.org", apps_domain="apps.gpu.example.org")
    assert site.cookie() == "__Host-gp_app"
    assert site.origin("echo--s1") == "https://echo--s1.apps.gpu.example.org"
    assert site.origin("echo--s1", 10205) == "https://echo--s1.apps.gpu.example.org:10205"
    assert SITE.origin("echo--s1") == ORIGIN


@pytest.mark.parametrize(
    ("platform_url", "origin", "cookie_name"),
    [
        ("http://10.0.0.5", "http://10.0.0.5:10205", "gp_app_10205"),
        ("http://[fd00::5]:8000", "http://[fd00::5]:10205", "gp_app_10205"),
        ("https://GPU.example.org", "https://gpu.example.org:10205", "__Host-gp_app_10205"),
    ],
)
def test_by_port_origins_use_the_platform_host_name(platform_url: str, origin: str, cookie_name: str) -> None:
    site = Site(platform_url=platform_url, apps_domain="")
    assert site.origin("echo--s1", 10205) == origin
    assert site.origin("echo--s1", 443 if site.is_secure else 80) == origin.removesuffix(":10205")
    assert (site.cookie(10205), site.state_cookie(10205)) == (cookie_name, f"{cookie_name}_state")
    assert site.is_at_port(origin.partition("//")[2].upper().encode(), 10205)
    assert not any(site.is_of_apps(host) for host in (b"", b".", b"10.0.0.5", b"echo--s1.", b"apps.localhost"))


@pytest.mark.parametrize(("user", "owner", "is_owner"), [(7, 7, True), (1, 1, True), (7, 8, False), (0, 0, False)])
def test_nobody_owns_what_belongs_to_nobody(user: int, owner: int, *, is_owner: bool) -> None:
    principal = Principal(route(owner=owner), "", user, 0.0, 1.0, is_reachable=True, headers=[])
    assert principal.is_owner is is_owner


def test_a_service_worker_is_refused_at_a_borrowed_port() -> None:
    by_port = authorizer(route(listen_port=10205), site=BY_PORT)
    named = [(b"Cookie", cookie().replace("gp_app=", "gp_app_10205=").encode()), (b"Host", b"127.0.0.1:10205")]
    for extra, expected in (([], 200), ([(b"Service-Worker", b"script")], 403)):
        decision = by_port.authorize(RequestHead(b"GET", b"/sw.js", named + extra), PEER, listen_port=10205)
        assert status(decision) == expected
    assert status(ask(authorizer(), Cookie=cookie(), Service_Worker="script")) == 200


def test_the_name_of_all_ports_leads_to_the_apps_own() -> None:
    authorizer_ = authorizer(route(listen_port=10205))

    def visit(method: str = "GET", port: int | None = 10205, **headers: str) -> Decision:
        named = {"Host": "ports.apps.localhost:10205"} | headers
        pairs = [(name.encode(), value.encode()) for name, value in named.items()]
        return authorizer_.authorize(RequestHead(method.encode(), b"/lab?x=1", pairs), PEER, port)

    for method in ("GET", "HEAD"):
        assert header(visit(method), "Location") == "http://echo--s1.apps.localhost:10205/lab?x=1"
    for refused in (visit("POST"), visit(port=10206), visit(Connection="Upgrade", Upgrade="websocket")):
        assert status(refused) == 421
    assert status(visit(port=None)) == 404


def test_the_oldest_principal_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizer_module, "MAX_CACHED_PRINCIPALS", 2)
    public = authorizer(route(is_public=True))
    found = [ask(public, Cookie=f"a={number}") for number in (1, 2, 3, 2, 1)]
    principals = [each.principal for each in found if isinstance(each, ForwardDecision)]
    assert len(principals) == 5
    assert principals[1] is principals[3]
    assert principals[0] is not principals[4]


def test_responses_at_a_port_of_their_own_are_not_cached() -> None:
    pairs = [(b"Cache-Control", b"max-age=9")]
    for site, names in ((SITE, [b"max-age=9"]), (BY_PORT, [b"no-store"])):
        found = authorizer(site=site)
        principal = Principal(route(), "", 0, 0.0, 1.0, is_reachable=True, headers=[])
        shown = found.response_headers(principal, pairs)
        assert [value for name, value in shown if name == b"Cache-Control"] == names


def test_an_app_gets_no_cookie_that_nobody_sent() -> None:
    assert "cookie" not in sent(ask(authorizer(route(is_public=True))))
