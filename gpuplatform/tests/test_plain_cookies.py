"""Cookies with escapes do not reach Django."""

from typing import Any

import pytest

from gpuplatform.plain_cookies import PlainCookies


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize(
    ("given", "seen"),
    [
        (b"gp_session=abc; gp_csrf=1", b"gp_session=abc; gp_csrf=1"),
        (b'a="\\\\\\""; gp_session=abc; b=\\', b" gp_session=abc"),
        (b'a="\\\\', b""),
    ],
)
async def test_cookies_with_escapes_are_dropped(kind: str, given: bytes, seen: bytes) -> None:
    found: list[Any] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        found.append(scope)

    scope = {"type": kind, "headers": [(b"host", b"\\"), (b"cookie", given)]}
    await PlainCookies(application)(scope, None, None)
    assert found[0]["headers"] == [(b"host", b"\\"), (b"cookie", seen)]
    assert scope["headers"][1] == (b"cookie", given)
