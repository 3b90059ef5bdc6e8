"""Responses that the proxy makes itself."""

import pytest

from proxy.http import responses
from proxy.http.responses import LocalResponse, PageContent


def header(response: LocalResponse, name: bytes) -> list[bytes]:
    return [value for key, value in response.headers if key == name]


@pytest.mark.parametrize("location", ["/a b", "/é", "/a\r\nSet-Cookie: x", "/\x00"])
def test_an_ambiguous_location_is_refused(location: str) -> None:
    with pytest.raises(ValueError, match="printable ASCII"):
        responses.redirect(location)
    made = responses.redirect("/a?b#c")
    assert (made.status, header(made, b"Location"), made.body) == (303, [b"/a?b#c"], b"")


@pytest.mark.parametrize(
    ("response", "status"),
    [
        (responses.RESPONSE_TIMEOUT, 504),
        (responses.UPSTREAM_FAILED, 502),
        (responses.HEAD_TOO_LARGE, 431),
        (responses.TOO_MANY_REQUESTS, 429),
        (responses.BAD_REQUEST, 400),
        (responses.REQUEST_TIMEOUT, 408),
        (responses.INTERNAL_ERROR, 500),
    ],
)
def test_what_leaves_a_request_unread_ends_the_connection(response: LocalResponse, status: int) -> None:
    assert (response.status, response.closes) == (status, True)
    assert response.to_bytes().startswith(b"HTTP/1.1 %d " % status)


@pytest.mark.parametrize(("closes", "with_body"), [(True, True), (False, False)])
def test_a_response_is_written_whole(*, closes: bool, with_body: bool) -> None:
    response = responses.text(403, "No.", (b"X", b"y"))
    head, _, body = response.to_bytes(with_body=with_body, closes=closes).partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 403 Forbidden"
    assert {b"Content-Length: 4", b"Content-Type: text/plain; charset=utf-8", b"X: y"} <= set(lines)
    assert (lines[-1] == b"Connection: close", body) == (closes, b"No.\n" if with_body else b"")


def test_nothing_of_ours_is_stored_framed_sniffed_or_indexed() -> None:
    made = responses.json_text(200, "{}")
    assert dict(made.headers) == {
        b"Cache-Control": b"no-store",
        b"Content-Security-Policy": b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
        b"Referrer-Policy": b"no-referrer",
        b"X-Content-Type-Options": b"nosniff",
        b"X-Robots-Tag": b"noindex",
        b"Content-Type": b"application/json",
        b"Content-Length": b"2",
    }


def test_texts_of_a_page_are_no_markup() -> None:
    words = PageContent(title="<t>", text="<x>", link=('/"', "<l>"), state='"s', output="<o>")
    body = responses.page(200, words).body.decode()
    for shown in (
        "<h1>&lt;t&gt;</h1>",
        "<p>&lt;x&gt;</p>",
        '<a href="/&quot;">&lt;l&gt;</a>',
        '"&quot;s"',
        "<pre>&lt;o&gt;",
    ):
        assert shown in body
    assert responses.RELOAD in body
    quiet = responses.page(200, PageContent(title="t", text="x")).body.decode()
    assert not any(each in quiet for each in ("<pre", "<script", "<a ", "data-state", "http-equiv"))
    assert "<pre hidden></pre>" in responses.page(200, PageContent(title="t", text="x", state="s")).body.decode()
