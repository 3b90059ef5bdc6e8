"""The pages in Korean: they are rendered, and their headings are translated."""

import re

import pytest

from tests.factories import make_host, make_image, make_session, make_user, run_session
from tests.web import browser_of

PATHS = ("/", "/sessions/", "/sessions/launch/", "/folders/", "/environments/", "/hosts/", "/accounts/", "/help/")

ADMIN_MODELS = (
    *("accounts/user", "accounts/resourcepolicy", "accounts/apitoken", "accounts/sshkey"),
    *("resources/host", "resources/resourcegroup", "resources/gpu", "resources/preset", "resources/image"),
    *("resources/registry", "folders/storageroot", "folders/folder", "notifications/announcement"),
    *("compute/session", "compute/endpoint", "compute/conversion", "compute/sessionevent"),
)
# What is the same in every language: names, identifiers and what the rows are called.
KOREAN_OR_NAME = re.compile(r"[가-힣]|^(?:\w+@example\.org|UUID|ID|UID|fGPU|GPU|CPU|English|[\w.:-]+)$")


@pytest.mark.django_db
def test_every_page_has_a_korean_heading() -> None:
    user = make_user(is_superuser=True)
    host = make_host(gpus=1)
    make_image()
    session = run_session(owner=user, host=host, fgpu=500)
    waiting = make_session(owner=user, resource_group=host.group)
    client = browser_of(user)
    for path in (*PATHS, f"/sessions/{waiting.pk}/terminate/", f"/sessions/{session.pk}/logs/"):
        response = client.get(path, headers={"accept-language": "ko"}, follow=True)
        page = response.content.decode()
        assert response.status_code == 200, path
        assert '<html lang="ko">' in page, path
        assert (
            re.search(r"<h[12][^>]*>[^<]*[가-힣]", page.replace("</svg>", "").replace("</use>", "")) or "도움말" in page
        ), path


@pytest.mark.django_db
def test_the_administration_names_fields_and_actions_in_korean() -> None:
    user = make_user(is_superuser=True)
    run_session(owner=user, host=make_host(gpus=1), fgpu=500)
    make_image()
    client = browser_of(user)
    english: set[str] = set()
    for model in ADMIN_MODELS:
        for path in (f"/admin/{model}/", f"/admin/{model}/add/"):
            response = client.get(path, headers={"accept-language": "ko"})
            if response.status_code == 200:
                english |= {text for text in _admin_texts(response.content.decode()) if not KOREAN_OR_NAME.search(text)}
    assert english == set()


def _admin_texts(page: str) -> set[str]:
    """Return the labels, help, heads of columns and actions of a page of the administration."""
    parts = re.findall(
        r'<(?:label|legend|option|h2)\b[^>]*>(.*?)</|<div class="help"[^>]*>\s*<div>(.*?)</div>', page, re.DOTALL
    )
    heads = re.findall(r'<div class="text">(.*?)</div>', page, re.DOTALL)
    texts = (re.sub(r"<[^>]+>", "", text).strip() for text in (*(one or two for one, two in parts), *heads))
    return {text for text in texts if re.search("[A-Za-z]", text)}
