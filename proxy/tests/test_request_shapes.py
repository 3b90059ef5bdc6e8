"""Authorization by what a request is: its path, method, framing, version, and whether a page is asked for."""

import pytest

from proxy.authorization.decisions import Decision, ForwardDecision
from proxy.authorization.login_flow import ReservedRequest
from proxy.authorization.request_checks import is_navigation
from proxy.http.headers import RequestHead
from proxy.http.responses import LocalResponse
from proxy.tests.site import HOST, authorizer, cookie, route
from proxy.tests.test_authorization import PEER, WEBSOCKET, ask, header, sent, status


@pytest.mark.parametrize("path", ["logout", "status", "status?look", "again", "callback?t=t1"])
def test_pages_of_other_origins_may_not_use_reserved_paths(path: str) -> None:
    """An image on another page would log its reader out."""
    for presented in ("", cookie()):
        image = {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "no-cors", "Sec_Fetch_Dest": "image"}
        assert status(ask(authorizer(), "GET", f"/.gp/{path}", Cookie=presented, **image)) == 403
        assert status(ask(authorizer(), "POST", f"/.gp/{path}", Cookie=presented, Origin="http://evil.example")) == 403
        link = {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
        decision = ask(authorizer(), "GET", f"/.gp/{path}", Cookie=presented, **link)
        assert isinstance(decision, ReservedRequest)
        assert f"/.gp/{path}" == (decision.path + (b"?" + decision.query if decision.query else b"")).decode()


@pytest.mark.parametrize("target", ["/.gp/other", "/.gp/", "/a/.gp/logout", "/.gp/logout/"])
def test_other_paths_are_the_apps(target: str) -> None:
    assert isinstance(ask(authorizer(), "GET", target, Cookie=cookie()), ForwardDecision)


@pytest.mark.parametrize("method", ["CONNECT", "TRACE"])
def test_apps_get_no_connect_and_no_trace(method: str) -> None:
    decision = ask(authorizer(), method, Cookie=cookie())
    assert isinstance(decision, LocalResponse)
    assert (decision.status, decision.closes, "GET, HEAD" in header(decision, "Allow")) == (405, True, True)


@pytest.mark.parametrize(
    ("headers", "closes"),
    [
        ({}, False),
        ({"Content-Length": "0"}, False),
        ({"Content-Length": "10"}, True),
        ({"Transfer-Encoding": "chunked"}, True),
        (WEBSOCKET, True),
    ],
)
def test_a_refusal_closes_where_something_may_follow(headers: dict[str, str], *, closes: bool) -> None:
    method = "GET" if headers is WEBSOCKET else "POST"
    for named in ({}, {"Cookie": cookie(), "Origin": "http://evil.example"}):
        decision = ask(authorizer(), method, **headers, **named)
        assert isinstance(decision, LocalResponse)
        assert (decision.status, decision.closes) == (403 if named else 401, closes)
    far = authorizer(route(address="10.0.0.1"))
    decision = ask(far, method, Cookie=cookie(), **headers)
    assert isinstance(decision, LocalResponse)
    assert (decision.status, decision.closes) == (502, closes)


@pytest.mark.parametrize(
    ("method", "headers", "length", "added"),
    [
        ("GET", {}, 0, {}),
        ("POST", {"Content-Length": "12"}, 12, {"content-length": "12"}),
        ("POST", {"Transfer-Encoding": "Chunked"}, None, {"transfer-encoding": "chunked"}),
        ("GET", {"Connection": "keep-alive, upgrade", "Upgrade": "WebSocket"}, 0, {"upgrade": "websocket"}),
        ("GET", {"Connection": "keep-alive", "Upgrade": "websocket"}, 0, {}),
        ("GET", {"Content-Length": "0", **WEBSOCKET}, 0, {"upgrade": "websocket"}),
        ("GET", {"Connection": "upgrade"}, 0, {}),
    ],
)
def test_what_concerns_one_hop_is_written_anew(
    method: str, headers: dict[str, str], length: int | None, added: dict[str, str]
) -> None:
    decision = ask(authorizer(), method, Cookie=cookie(), **headers)
    assert isinstance(decision, ForwardDecision)
    own = {"host", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"}
    hop = {name: value for name, value in sent(decision).items() if name not in own | {"connection"}}
    assert (decision.length, hop) == (length, added)
    assert decision.is_websocket == ("upgrade" in added)
    assert sent(decision).get("connection") == ("Upgrade" if "upgrade" in added else None)


def http_10(**headers: str) -> Decision:
    """Authorize a request of HTTP/1.0."""
    named = {"Host": HOST, "Cookie": cookie()} | headers
    pairs = [(name.encode(), value.encode()) for name, value in named.items()]
    return authorizer().authorize(RequestHead(b"GET", b"/x", pairs, is_http_10=True), PEER)


def test_http_1_0_stays_what_it_is() -> None:
    decision = http_10(Expect="100-continue")
    assert isinstance(decision, ForwardDecision)
    assert decision.to_bytes().startswith(b"GET /x HTTP/1.0\r\n")
    assert not decision.expects_continue
    assert status(http_10(**{"Transfer-Encoding": "chunked"})) == status(http_10(**WEBSOCKET)) == 400
    expecting = ask(authorizer(), "POST", Cookie=cookie(), Expect="100-Continue")
    assert isinstance(expecting, ForwardDecision)
    assert expecting.expects_continue


@pytest.mark.parametrize(
    ("headers", "is_page"),
    [
        ({"Sec-Fetch-Mode": "navigate"}, True),
        ({"Sec-Fetch-Mode": "navigate", "Accept": "*/*"}, True),
        ({"Sec-Fetch-Mode": "cors", "Accept": "text/html"}, False),
        ({"Accept": "text/html"}, True),
        ({"Accept": "text/html", "Upgrade": "websocket"}, False),
        ({}, False),
    ],
)
def test_a_navigation_is_a_page_that_is_asked_for(headers: dict[str, str], *, is_page: bool) -> None:
    known = {name.lower().encode(): value.encode() for name, value in headers.items()}
    for method, expected in ((b"GET", is_page), (b"HEAD", is_page), (b"POST", False)):
        assert is_navigation(RequestHead(method, b"/", []), known) is expected
