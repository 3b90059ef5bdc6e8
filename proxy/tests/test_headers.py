"""Filtering of headers in both directions."""

import pytest

from proxy.http import headers
from proxy.http.headers import MalformedRequestError


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


@pytest.mark.parametrize("name", [b"Host", b"Content-Length", b"Transfer-Encoding", b"Origin", b"Sec-Fetch-Site"])
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
        b"Upgrade",
        b"X-GP-Login",
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
