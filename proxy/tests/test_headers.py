"""Filtering of headers in both directions."""

import pytest

from proxy.http import headers
from proxy.http.headers import MalformedRequestError

SINGLE_TOO = [b"Sec-Fetch-Site", b"Sec-Fetch-Mode", b"Authorization"]


@pytest.fixture(autouse=True)
def _nothing_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin with no name known."""
    monkeypatch.setattr(headers, "_request_actions", {})
    monkeypatch.setattr(headers, "_response_actions", {})


@pytest.mark.parametrize(
    "name",
    [
        "X-Forwarded-For",
        "x-forwarded-anything",
        "X-Real-IP",
        "Forwarded",
        "X-GP-Gateway",
        "X_Forwarded_For",
        "X_GP_Gateway",
        "Content_Length",
        "True_Client-IP",
        "Keep_Alive",
        "X_Forwarded_Server",
        "True-Client-IP",
        "X-Client-IP",
        "X-Cluster-Client-IP",
        "Upgrade",
        "Trailer",
        "Trailers",
        "Proxy-Authenticate",
        "Proxy-Authentication-Info",
        "Transfer-Encoding",
        "Content-Length",
        "Expect",
        "Host",
        "Keep-Alive",
        "TE",
        "Proxy-Authorization",
        "Proxy-Connection",
        "HTTP2-Settings",
        "Cookie",
        "Authorization",
    ],
)
def test_forgeable_and_hop_by_hop_request_headers_are_dropped(name: str) -> None:
    assert headers.classify([(name.encode(), b"x"), (b"X-Mine", b"y")]).forwarded == [(b"X-Mine", b"y")]


def test_headers_named_by_connection_are_dropped() -> None:
    pairs = [(b"Connection", b"close, x-secret"), (b"X-Secret", b"1"), (b"X-Open", b"2")]
    assert headers.classify(pairs).forwarded == [(b"X-Open", b"2")]
    assert headers.strip_hop_by_hop(pairs) == [(b"X-Open", b"2")]


@pytest.mark.parametrize("name", [b"Host", b"Content-Length", b"Transfer-Encoding", b"Origin", *SINGLE_TOO])
def test_repeated_single_headers_are_refused(name: bytes) -> None:
    with pytest.raises(MalformedRequestError):
        headers.classify([(name, b"1"), (name.lower(), b"1")])


def test_platform_cookies_are_stripped_and_others_keep_order() -> None:
    header = b"keep=me; gp_app=T;other=2; __Host-gp_app=U; gp_session=V; __HOST-GP_APP_STATE=W; gp_csrf=X; last"
    assert headers.strip_platform_cookies(header) == b"keep=me; other=2; last"
    assert headers.strip_platform_cookies(b"gp_app=T") == b""


def test_two_cookie_headers_are_joined() -> None:
    assert headers.classify([(b"Cookie", b"a=1"), (b"cookie", b"b=2")]).known[b"cookie"] == b"a=1; b=2"


@pytest.mark.parametrize(
    ("set_by_app", "passed"),
    [
        (b"a=1; Path=/; Expires=Wed, 21 Oct 2099 07:28:00 GMT", b"a=1; Path=/; Expires=Wed, 21 Oct 2099 07:28:00 GMT"),
        (b"a=1; Domain=apps.localhost; Secure", b"a=1; Secure"),
        (b"a=1;domain = .localhost;Path=/", b"a=1;Path=/"),
        (b"gp_app=stolen", None),
        (b"__host-GP_app=stolen; Secure; Path=/", None),
        (b" gp_session=x", None),
        (b"=gp_app=x", None),
        (b"gp_app", None),
    ],
)
def test_set_cookie_is_confined_to_the_apps_host(set_by_app: bytes, passed: bytes | None) -> None:
    cookies = [
        v
        for n, v in headers.filter_response_headers([(b"Set-Cookie", set_by_app)], is_public=False)
        if n == b"Set-Cookie"
    ]
    assert cookies == ([] if passed is None else [passed])


@pytest.mark.parametrize(
    "name",
    [
        b"X-Accel-Redirect",
        b"X-Accel-Buffering",
        b"X-Sendfile",
        b"Clear-Site-Data",
        b"Alt-Svc",
        b"Strict-Transport-Security",
        b"Access-Control-Allow-Origin",
        b"Connection",
        b"Proxy-Authenticate",
        b"Proxy-Authentication-Info",
        b"Keep-Alive",
        b"Trailer",
        b"Transfer-Encoding",
        b"Upgrade",
        b"X-GP-Login",
        b"X-Lighttpd-Send-File",
        b"NEL",
        b"Report-To",
        b"X-Robots-Tag",
        b"Cross-Origin-Resource-Policy",
    ],
)
def test_dangerous_response_headers_are_dropped(name: bytes) -> None:
    kept = headers.filter_response_headers([(name, b"x"), (b"ETag", b"1")], is_public=False)
    assert kept == [(b"ETag", b"1"), headers.NO_INDEX, *headers.PRIVATE, headers.SAME_ORIGIN_REFERRER]


def test_private_app_cannot_be_framed_by_other_origins() -> None:
    pairs = [(b"Content-Security-Policy", b"sandbox"), (b"cross-origin-resource-policy", b"cross-origin")]
    shown = headers.filter_response_headers(pairs, is_public=False)
    assert shown == [pairs[0], headers.NO_INDEX, *headers.PRIVATE, headers.SAME_ORIGIN_REFERRER]
    assert headers.filter_response_headers(pairs, is_public=True)[:2] == pairs


def test_public_app_may_use_cors_without_being_indexed() -> None:
    pairs = [(b"Access-Control-Allow-Origin", b"*"), (b"X-Robots-Tag", b"all"), (b"Referrer-Policy", b"origin")]
    assert headers.filter_response_headers(pairs, is_public=True) == [pairs[0], pairs[2], headers.NO_INDEX]


@pytest.mark.parametrize("name", ["Accept", "Sec-Fetch-Dest", "Service-Worker", "Sec-Fetch-Mode", "Origin"])
def test_what_decides_reaches_the_app_too(name: str) -> None:
    header = (name.encode(), b"x")
    found = headers.classify([header, (b"My_Own", b"y")])
    assert (found.forwarded, found.known) == ([header, (b"My_Own", b"y")], {name.lower().encode(): b"x"})


@pytest.mark.parametrize("is_relayed", [True, False])
def test_a_web_process_is_believed_about_its_client(*, is_relayed: bool) -> None:
    pairs = [(b"X-Forwarded-Proto", b"https"), (b"X_Forwarded_Proto", b"x"), (b"X-GP-Other", b"x"), (b"X-Mine", b"y")]
    kept = headers.classify(pairs, is_relayed=is_relayed).forwarded
    assert kept == ([pairs[0], pairs[3]] if is_relayed else [pairs[3]])


@pytest.mark.parametrize(
    ("connection", "kept"),
    [
        (b"keep-alive", [b"X-A", b"X-B", b"Content-Length"]),
        (b"Upgrade, close", [b"X-A", b"X-B", b"Content-Length"]),
        (b"x-a", [b"X-B", b"Content-Length"]),
        (b"close,X-A ,\tx-b", [b"Content-Length"]),
        (b"content-length, , keep-alive", [b"X-A", b"X-B", b"Content-Length"]),
    ],
)
def test_connection_names_what_goes_no_further(connection: bytes, kept: list[bytes]) -> None:
    pairs = [(name, b"1") for name in (b"X-A", b"X-B", b"Content-Length")]
    assert [name for name, _ in headers.without_named(pairs, connection)] == kept
    several = [(b"Connection", each) for each in connection.split(b",")]
    for found in (
        headers.strip_hop_by_hop([*several, *pairs]),
        headers.filter_response_headers([*several, *pairs], is_public=True)[:-2],
    ):
        assert [name for name, _ in found] == kept


def test_values_that_look_like_names_are_values() -> None:
    pairs = [(b"Cookie", b"a=1"), (b"X-Mine", b"Cookie")]
    for _ in range(2):
        assert headers.classify(pairs).forwarded == [(b"X-Mine", b"Cookie")]
    pairs = [(b"X-Accel-Expires", b"1"), (b"X-Mine", b"X-Accel-Expires")]
    for _ in range(2):
        assert headers.filter_response_headers(pairs, is_public=True)[0] == pairs[1]


def test_lists_are_joined_and_each_cookie_is_found() -> None:
    repeated = [(b"Accept", b"a"), (b"accept", b"b"), (b"ACCEPT", b"c")]
    assert headers.classify(repeated).known == {b"accept": b"a, b, c"}
    assert headers.cookie_values(b"gp_app=1; a=gp_app=2;gp_app = 3; xgp_app=4; gp_app", b"gp_app") == [b"1", b"3", b""]


@pytest.mark.parametrize("name", [b"gp_x", b"GP_X", b"__Host-gp_app", b"__SECURE-gp", b"__host-gpx"])
def test_cookies_of_the_platform_are_known_by_their_names(name: bytes) -> None:
    assert headers.is_platform_cookie(name)
    assert headers.strip_platform_cookies(b" %b = 1;; a=2 " % name) == b"a=2"
    assert not headers.is_platform_cookie(b"x" + name)


def test_an_own_referrer_policy_is_kept() -> None:
    pairs = [(b"Referrer-Policy", b"origin")]
    assert headers.filter_response_headers(pairs, is_public=False) == [*pairs, headers.NO_INDEX, *headers.PRIVATE]


def test_an_origin_that_others_may_have_later_caches_nothing() -> None:
    pairs = [(b"Cache-Control", b"max-age=9"), (b"EXPIRES", b"x"), (b"Pragma", b"x"), (b"X", b"y")]
    assert headers.without_caching(pairs) == [(b"X", b"y"), headers.NO_STORE]


@pytest.mark.parametrize("is_response", [True, False])
def test_names_that_strangers_choose_fill_no_memory(monkeypatch: pytest.MonkeyPatch, *, is_response: bool) -> None:
    cache = headers._response_actions if is_response else headers._request_actions

    def ask(name: bytes) -> None:
        if is_response:
            headers.filter_response_headers([(name, b"x")], is_public=True)
        else:
            headers.classify([(name, b"x")])

    long = headers.MAX_CACHED_NAME_BYTES
    ask(b"x" * (long + 1))
    ask(b"y" * long)
    assert list(cache) == [b"y" * long]
    monkeypatch.setattr(headers, "MAX_CACHED_NAMES", 3)
    for name in (b"a", b"b", b"a"):
        ask(name)
    assert list(cache) == [b"y" * long, b"a", b"b"]
    ask(b"c")
    assert list(cache) == [b"c"]
