"""An import in a real browser: pasted, watched, cancelled, fetched, launched, opened; and shared by a link."""

import re
from collections.abc import Iterator
from html import escape
from typing import Any

import pytest
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from playwright.sync_api import Browser, Page, expect

from accounts.models import User
from imports.models import Import, ImportCredential, ImportState, ImportTarget
from pages.tests.import_rows import ADDRESS, FOUND
from resources import clock
from resources.models import Host, Image
from sessions.models import Endpoint, EndpointState, Session
from tests.browser import signed_in
from tests.factories import PASSWORD, make_app, make_group, make_host, make_image, make_root, make_user, run_session
from tests.live import LiveServer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]

NOTEBOOK = f"{ADDRESS}/blob/main/first.ipynb"


@pytest.fixture
def owner() -> User:
    return make_user()


@pytest.fixture
def host(owner: User) -> Host:
    host = make_host(group=make_group(name="lab"), gpus=1)
    make_root(host)
    return host


@pytest.fixture
def image(host: Host) -> Image:
    image = make_image(reference="gpuplatform/python:3.11", environment="Python", version="3.11")
    make_app(image=image, name="jupyterlab", title="JupyterLab")
    return image


@pytest.fixture
def page(browser: Browser, server: LiveServer, owner: User, image: Image) -> Iterator[Page]:
    with signed_in(browser, server, owner) as context:
        page = context.new_page()
        page.goto("/")
        yield page


def step(**fields: Any) -> None:
    """Take the import that is under way a step further."""
    is_over = fields.get("state") in (ImportState.DONE, ImportState.FAILED)
    Import.objects.filter(ended_at=None).update(**fields, ended_at=clock.now() if is_over else None)


def test_pasted_work_is_fetched_and_launched(page: Page) -> None:
    page.get_by_role("link", name="Launch", exact=True).click()
    page.get_by_role("link", name="Start from an address").click()
    expect(page.get_by_role("link", name="Import", exact=True)).to_have_attribute("aria-current", "page")
    page.get_by_label("Address").fill("https://localhost:8888/notebooks/first.ipynb")
    page.keyboard.press("Enter")
    expect(page.locator(".field-error")).to_have_text("Nothing is fetched from this host.")
    page.get_by_label("Address").fill(NOTEBOOK)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Waits for its session")).to_be_visible()
    step(state=ImportState.FETCHING, progress="Receiving objects: 42 %", fetched_bytes=42 * 2**20)
    expect(page.get_by_text("Receiving objects: 42 % 42 MiB")).to_be_visible()
    page.reload()
    other = page.context.new_page()
    other.goto(page.url)
    step(state=ImportState.DONE, found=FOUND)
    expect(other.get_by_text("requirements.txt")).to_be_visible()
    expect(page.get_by_text("in JupyterLab")).to_be_visible()
    page.get_by_label("Name of the new folder").fill("my course")
    page.get_by_role("button", name="Go on").click()
    expect(page.locator(".field-error")).to_be_visible()
    page.get_by_label("Name of the new folder").fill("course")
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_role("heading", name="Waits for its session")).to_be_visible()
    step(state=ImportState.DONE, found=FOUND)
    expect(page.get_by_role("heading", name="It is in the folder course")).to_be_visible()
    page.get_by_role("link", name="Go on to the launch").click()
    expect(page.locator("#review-folders")).to_contain_text("/home/work/course")
    expect(page.locator("#review")).to_contain_text(ADDRESS)
    page.reload()
    expect(page.locator("#review")).to_contain_text(ADDRESS)
    assert Import.objects.filter(target=ImportTarget.SESSION).count() == 0, "nothing is launched without a click"
    page.get_by_role("button", name=re.compile("^(Launch|Queue)")).click()
    expect(page.get_by_text("Launched")).to_be_visible()
    assert Import.objects.get(target=ImportTarget.SESSION).session


def test_a_failed_or_cancelled_import_loses_nothing(page: Page) -> None:
    page.goto(f"/launch?repo={ADDRESS}&ref=main&fgpu=0.5")
    expect(page.get_by_text("Nothing is fetched or launched before you say so.")).to_be_visible()
    page.get_by_role("button", name="Look what is there").click()
    page.get_by_role("button", name="Cancel the import").click()
    expect(page.get_by_role("heading", name="Cancelled")).to_be_visible()
    page.get_by_role("link", name="Change it and try again").click()
    expect(page.get_by_label("Branch, tag or commit")).to_have_value("main")
    page.get_by_role("button", name="Look what is there").click()
    step(state=ImportState.FAILED, problem="It asks for a log-in.")
    expect(page.get_by_role("alert")).to_have_text("It asks for a log-in.")
    page.get_by_role("link", name="Change it and try again").click()
    page.get_by_role("button", name="Add a credential").click()
    page.get_by_label("Name", exact=True).fill("lab")
    page.get_by_label("Host").fill("github.com")
    page.get_by_label("Token or private key").fill("s3cret")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_label("Address")).to_have_value(ADDRESS)
    expect(page.get_by_label("Branch, tag or commit")).to_have_value("main")
    expect(page.get_by_label("Credential")).to_have_value(str(ImportCredential.objects.get().pk))
    page.get_by_role("button", name="Look what is there").click()
    step(state=ImportState.DONE, found=FOUND)
    page.get_by_label("Into the session alone").check()
    page.get_by_role("button", name="Go on").click()
    expect(page.locator("#review")).to_contain_text("0.5 fGPU")
    assert "s3cret" not in page.content()


def test_the_session_opens_the_file(page: Page, owner: User, host: Host, image: Image) -> None:
    session = run_session(owner=owner, host=host, image=image)
    about = {"address": NOTEBOOK, "kind": "git", "url": ADDRESS, "directory": "course"}
    Import.objects.create(
        **{**about, "owner": owner, "session": session, "target": ImportTarget.SESSION}, mount_path="/home/work"
    )
    page.goto(f"/sessions/{session.pk}/")
    page.get_by_role("link", name="Apps").click()
    expect(page.get_by_text("is being fetched")).to_be_visible()
    step(state=ImportState.DONE, found=FOUND)
    with page.context.expect_page() as opened:
        page.get_by_role("button", name="Open first.ipynb in JupyterLab").click()
    tab = opened.value
    expect(tab.get_by_text("The host starts it")).to_be_visible()
    assert tab.url.endswith("/apps/jupyterlab/?imported")
    with tab.expect_request(re.compile("/lab/tree/course/first[.]ipynb$")):
        Endpoint.objects.update(state=EndpointState.READY)
        tab.goto(tab.url, wait_until="commit")


def test_a_launch_is_shared_by_link_and_badge(page: Page, owner: User, host: Host, image: Image) -> None:
    session = run_session(owner=owner, host=host, image=image)
    Session.objects.update(environment={"TOKEN": "s3cret"})
    page.goto(f"/sessions/{session.pk}/")
    page.get_by_role("link", name="Share this launch").click()
    link = page.get_by_role("textbox", name="Link").input_value()
    markdown = page.get_by_role("textbox", name="Markdown").input_value()
    assert "s3cret" not in link
    assert markdown.endswith(f"({link})")
    badge = page.get_by_alt_text("The badge on light pages")
    assert badge.evaluate("image => image.complete && image.naturalWidth") == 164
    assert f'href="{escape(link)}"' in page.get_by_role("textbox", name="HTML").input_value()
    page.context.clear_cookies()
    User.objects.update(password=PBKDF2PasswordHasher().encode(PASSWORD, "salt" * 8, iterations=10))  # as the server's
    page.goto(link)
    page.get_by_label("E-mail").fill(owner.email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_text("Filled in by a link. Nothing is launched before you say so.")).to_be_visible()
    assert Session.objects.count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_imports_fit_a_phone_in_korean(
    browser: Browser, server: LiveServer, owner: User, image: Image, scheme: Any
) -> None:
    owner.language = "ko"
    owner.save()
    size = {"width": 390, "height": 844}
    with signed_in(browser, server, owner, viewport=size, color_scheme=scheme, locale="ko") as context:
        page = context.new_page()
        page.goto(f"/imports/?repo={NOTEBOOK}")
        page.locator("#look-button").click()
        expect(page.locator("#cancel-import")).to_be_visible()
        step(state=ImportState.DONE, found=FOUND)
        expect(page.locator("#target-button")).to_be_visible()
        paths = ("/imports/", "/imports/credentials/", page.url)
        for path in paths:
            page.goto(path)
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
            assert not re.search("Address|Credential|Branch|Folder|Resources", page.locator("main").inner_text()), path
