"""The Content-Security-Policy: strict on every page, and no page or template breaks it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client

from tests.factories import make_user

TEMPLATES = settings.BASE_DIR / "templates"
INLINE = {
    "style attribute": re.compile(r"<[^>]*\sstyle\s*="),
    "handler attribute": re.compile(r"<[^>]*\son[a-z]+\s*="),
    "evaluated htmx attribute": re.compile(r"\shx-(on\b|on:|vals\s*=\s*.js:|vars\b)"),
    "inline script or style": re.compile(r"<(script(?![^>]*\ssrc=)(?![^>]*\snonce=)|style)\b"),
    "script: address": re.compile(r"""(href|src|action)\s*=\s*["']?javascript:"""),
}


def directives(response: object) -> dict[str, str]:
    policy = response["Content-Security-Policy"]  # type: ignore[index]
    return dict(part.strip().split(" ", 1) for part in policy.split(";"))


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/accounts/sign-in/", "/sessions/", "/admin/", "/api/docs/", "/nothing/"])
def test_every_page_has_a_strict_policy(client: Client, path: str) -> None:
    client.force_login(make_user(is_superuser=True))
    policy = directives(client.get(path))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    for name in ("script-src", "style-src"):
        assert re.fullmatch(r"'self'( 'nonce-[A-Za-z0-9+/=]{24}')?", policy[name])
    assert policy.pop("form-action") == "'self' http://*.apps.localhost:*"
    assert not re.search(r"unsafe|\*|http", " ".join(policy.values()))


@pytest.mark.django_db
def test_each_response_has_a_nonce_of_its_own(client: Client) -> None:
    first, second = (client.get("/accounts/sign-in/") for _ in range(2))
    nonces = {re.search(r"'nonce-([^']+)'", directives(page)["script-src"])[1] for page in (first, second)}  # type: ignore[index]
    assert len(nonces) == 2
    assert any(f'nonce="{nonce}"'.encode() in first.content for nonce in nonces)


@pytest.mark.django_db
def test_the_error_page_keeps_its_nonce(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.raise_request_exception = False
    client.force_login(make_user())
    monkeypatch.setattr("pages.help.documents.search", lambda query, among: 1 / 0)
    page = client.get("/help/?q=word")
    assert page.status_code == 500
    nonce = re.search(rb'nonce="([^"]+)"', page.content)
    assert nonce
    assert f"'nonce-{nonce[1].decode()}'" in directives(page)["script-src"]


def templates() -> Iterator[Path]:
    return TEMPLATES.rglob("*.html")


@pytest.mark.parametrize("what", INLINE)
def test_no_template_has_what_the_policy_refuses(what: str) -> None:
    found = [str(path) for path in templates() if INLINE[what].search(path.read_text())]
    assert not found, f"{what} in {found}"
