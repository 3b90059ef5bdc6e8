"""What of a head passes, in both directions."""

import pytest

from proxy import headers
from proxy.headers import MalformedRequestError


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
def test_a_request_header_that_is_forged_or_ours_or_for_one_hop_goes_no_further(name: str) -> None:
    assert headers.classify([(name.encode(), b"x"), (b"X-Mine", b"y")]).forwarded == [(b"X-Mine", b"y")]


def test_what_a_connection_header_names_goes_no_further() -> None:
    pairs = [(b"Connection", b"close, x-secret"), (b"X-Secret", b"1"), (b"X-Open", b"2")]
    assert headers.classify(pairs).forwarded == [(b"X-Open", b"2")]
    assert headers.strip_hop_by_hop(pairs) == [(b"X-Open", b"2")]


@pytest.mark.parametrize("name", [b"Host", b"Content-Length", b"Transfer-Encoding", b"Origin", b"Sec-Fetch-Site"])
def test_a_header_that_decides_may_not_come_twice(name: bytes) -> None:
    with pytest.raises(MalformedRequestError):
        headers.classify([(name, b"1"), (name.lower(), b"1")])


def test_our_cookies_are_taken_out_and_the_others_stay_in_order() -> None:
    header = b"keep=me; gp_app=T;other=2; __Host-gp_app=U; gp_session=V; __HOST-GP_APP_STATE=W; gp_csrf=X; last"
    assert headers.strip_platform_cookies(header) == b"keep=me; other=2; last"
    assert headers.strip_platform_cookies(b"gp_app=T") == b""


def test_cookies_in_two_headers_are_read_as_one() -> None:
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
def test_an_app_sets_cookies_for_its_own_host_only_and_never_ours(set_by_app: bytes, passed: bytes | None) -> None:
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
def test_a_dangerous_header_of_an_app_does_not_reach_the_browser(name: bytes) -> None:
    kept = headers.filter_response_headers([(name, b"x"), (b"ETag", b"1")], is_public=False)
    assert kept == [(b"ETag", b"1"), headers.NO_INDEX, *headers.PRIVATE, headers.SAME_ORIGIN_REFERRER]


def test_a_private_app_is_shown_by_pages_of_its_own_origin_alone() -> None:
    pairs = [(b"Content-Security-Policy", b"sandbox"), (b"cross-origin-resource-policy", b"cross-origin")]
    shown = headers.filter_response_headers(pairs, is_public=False)
    assert shown == [pairs[0], headers.NO_INDEX, *headers.PRIVATE, headers.SAME_ORIGIN_REFERRER]
    assert headers.filter_response_headers(pairs, is_public=True)[:2] == pairs


def test_a_public_app_may_answer_other_origins_and_nobody_indexes_it() -> None:
    pairs = [(b"Access-Control-Allow-Origin", b"*"), (b"X-Robots-Tag", b"all"), (b"Referrer-Policy", b"origin")]
    assert headers.filter_response_headers(pairs, is_public=True) == [pairs[0], pairs[2], headers.NO_INDEX]
