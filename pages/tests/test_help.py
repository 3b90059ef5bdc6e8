"""The help: every document and link of it, the search, and the keys."""

import re
from itertools import product
from pathlib import Path
from urllib.parse import urljoin

import pytest
from django.contrib.staticfiles import finders
from django.test import Client
from playwright.sync_api import Browser, Page, expect
from pytest_django import Settings

from pages.help import documents
from pages.help.views import GROUPS
from restapi import client_wheel
from tests.browser import signed_in
from tests.factories import make_user
from tests.live import LiveServer
from tests.web import browser_of, text_of

FOR_USERS, FOR_STAFF = (
    frozenset(name for group in GROUPS if group.for_staff is kind for name in group.names) for kind in (False, True)
)
ALL = FOR_USERS | FOR_STAFF
LINKS = {  # pages, and the document that their link to the help leads to
    **{"/": "getting-started", "/sessions/": "sessions", "/sessions/launch/": "launching", "/folders/": "folders"},
    **{"/projects/": "projects", "/environments/": "environments", "/hosts/": "gpu-shares", "/accounts/": "account"},
    **{"/usage/": "usage", "/accounts/limits/": "account"},
    **{
        "/accounts/tokens/": "command-line",
        "/accounts/ssh-keys/": "ssh",
        "/webhooks/": "webhooks",
        "/deployments/": "deployments",
    },
}


@pytest.mark.django_db
@pytest.mark.parametrize("is_superadmin", [False, True], ids=["user", "superadmin"])
def test_every_document_is_a_page_and_its_links_work(is_superadmin: bool) -> None:
    client = browser_of(make_user(is_superuser=True) if is_superadmin else make_user())
    names = ALL if is_superadmin else FOR_USERS
    pages = {f"/help/{name}/": text_of(client, f"/help/{name}/") for name in names}
    index = text_of(client, "/help/")
    assert {name for name in ALL if f'href="/help/{name}/"' in index} == names
    broken = []
    for path, page in pages.items():
        article = page[page.index("<article") : page.index("</article>")]
        for href in re.findall(r'href="([^"]+)"', article):
            target, _, anchor = urljoin(path, href).partition("#")
            known = not target.startswith("/") or (
                target in pages and (not anchor or f'id="{anchor}"' in pages[target])
            )
            broken += [] if known else [(path, href)]
    assert broken == []


@pytest.mark.django_db
def test_operators_pages_are_the_staffs_and_engineers_nobodys() -> None:
    user, superadmin = browser_of(make_user()), browser_of(make_user(is_superuser=True))
    for name in FOR_STAFF:
        assert (user.get(f"/help/{name}/").status_code, superadmin.get(f"/help/{name}/").status_code) == (404, 200)
    for name in ("architecture", "design", "lifecycle", "proxy", "scheduling-algorithm", "adr/0053"):
        assert superadmin.get(f"/help/{name}/").status_code == 404
    assert 'href="/help/backup/#restore"' in text_of(superadmin, "/help/?q=restore")
    assert "/help/backup/" not in text_of(user, "/help/?q=restore")


@pytest.mark.django_db
def test_help_search_finds_sections_by_all_words() -> None:
    client = browser_of(make_user())
    page = text_of(client, "/help/?q=quota+trash")
    assert 'href="/help/ssh/#data-folders-without-a-session"' in page
    assert "Nothing in the help" in text_of(client, "/help/?q=%3Cb%3Exyzzy")
    assert "&lt;b&gt;xyzzy" in text_of(client, "/help/?q=%3Cb%3Exyzzy")
    assert client.get("/help/../settings/").status_code == client.get("/help/nothing/").status_code == 404


@pytest.mark.django_db
def test_translated_documents_have_the_originals_sections_and_links() -> None:
    client = browser_of(make_user())
    for name in ALL:
        original, korean = documents.load(name, ALL), documents.load(name, ALL, "ko")
        if korean.language == "ko" and not korean.is_outdated:
            assert [each.level for each in korean.sections] == [each.level for each in original.sections], name
            assert [each.anchor for each in korean.sections] == [each.anchor for each in original.sections], name
            assert _links(korean.html) == _links(original.html), name
            assert korean.html.count("<code>") >= original.html.count("<code>") * 0.9, name
    page = text_of(client, "/help/launching/", **{"accept-language": "ko"})
    assert '<article class="help-document" lang="ko">' in page


def test_an_outdated_translation_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "FOLDER", tmp_path)
    (tmp_path / "ko").mkdir()
    (tmp_path / "x.md").write_text("# One\n")
    (tmp_path / "ko/x.md").write_text(f"<!-- translates {documents.digest_of('x')} -->\n# 하나\n")
    documents.load.cache_clear()
    x = frozenset({"x"})
    assert (documents.load("x", x, "ko").title, documents.load("x", x, "ko").is_outdated) == ("하나", False)
    (tmp_path / "x.md").write_text("# Two\n")
    documents.load.cache_clear()
    assert documents.load("x", x, "ko").is_outdated
    assert documents.load("x", x, "en").title == documents.load("x", x).title == "Two"
    documents.load.cache_clear()


def _links(html: str) -> list[str]:
    return sorted(re.findall(r'href="([^"]+)"', html))


@pytest.mark.django_db
def test_help_needs_an_account(client: Client) -> None:
    for path in ("/help/", "/help/keys/", "/help/apps/"):
        assert client.get(path)["Location"].startswith("/accounts/sign-in/")


@pytest.mark.django_db
def test_help_link_leads_to_the_pages_own_document() -> None:
    user, superadmin = browser_of(make_user()), browser_of(make_user(is_superuser=True))
    for path, name in LINKS.items():
        assert f'href="/help/{name}/" aria-label="Help"' in text_of(user, path), path
    assert 'href="/help/" aria-label="Help"' in text_of(user, "/help/")
    assert 'href="/help/hosts/" aria-label="Help"' in text_of(superadmin, "/hosts/")


@pytest.mark.django_db
def test_a_page_names_this_platform_and_has_its_pictures(settings: Settings) -> None:
    settings.COMPUTE_PUBLIC_URL, settings.COMPUTE_SSH_ADDRESS = "https://gpu.lab.test", "0.0.0.0:2222"
    client = browser_of(make_user())
    page = text_of(client, "/help/command-line/")
    assert f"pip install {client_wheel.address()}" in page
    assert client_wheel.address().startswith("https://gpu.lab.test/client/")
    assert "ssh -p 2222 SESSION@gpu.lab.test" in text_of(client, "/help/ssh/")
    for name, language in product(FOR_USERS, ("en", "ko")):
        page = text_of(client, f"/help/{name}/", **{"accept-language": language})
        assert "gpu.example.org" not in page, name
        for picture in re.findall(r'<img src="([^"]+)"', page):
            assert finders.find(picture.removeprefix("/static/")), picture


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_keys_launch_search_and_explain(browser: Browser, server: LiveServer) -> None:
    with signed_in(browser, server, make_user()) as context:
        page = context.new_page()
        page.goto("/help/apps/")
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        page.keyboard.press("n")  # a dialog keeps its keys
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()
        page.keyboard.press("/")
        page.keyboard.type("n?/")
        assert page.evaluate("document.activeElement.value") == "n?/"
        page.get_by_role("heading", level=1).click()
        page.keyboard.press("n")
        page.wait_for_url("**/sessions/launch/")
        turn_off(page)
        page.keyboard.press("n")
        page.keyboard.press("/")
        assert page.url.endswith("/help/keys/")


def turn_off(page: Page) -> None:
    page.goto("/help/keys/")
    page.get_by_label("Use n, z, / and ? in this browser").uncheck()
    page.reload()
    expect(page.get_by_label("Use n, z, / and ? in this browser")).not_to_be_checked()
