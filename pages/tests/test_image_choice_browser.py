"""Choosing an image on the launch page: one's own, one by its name, and what is said of where it is."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from accounts.models import User
from resources.models import HostImage, ImageSource
from sessions.models import Session
from tests.browser import signed_in
from tests.factories import make_group, make_host, make_image, make_preset, make_user
from tests.live import LiveServer
from tests.wizard import launch_without_folder, open_step

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

LAUNCH = "/sessions/launch/"


@pytest.fixture
def user() -> User:
    user, group = make_user(), make_group(name="lab")
    hosts = [make_host(group=group, gpus=1) for _ in range(3)]
    make_preset(name="small", fgpu=500)
    python = make_image(environment="Python", version="3.11", description="Python and JupyterLab", size=2_140_000_000)
    HostImage.objects.create(host=hosts[0], image=python, size=1)
    mine = {"owner": user, "source": ImageSource.SESSION, "is_local": True, "reference": "gpuplatform/u1/genomics:2"}
    HostImage.objects.create(host=hosts[1], image=make_image(environment="genomics", version="2", **mine), size=1)
    hint = "Run `manage.py build_images --only TensorFlow:1.15` on every host, then enable it under Images."
    make_image(environment="TensorFlow", version="1.15", is_enabled=False, enable_hint=hint)
    return user


@pytest.fixture
def page(browser: Browser, server: LiveServer, user: User) -> Iterator[Page]:
    with signed_in(browser, server, user) as context:
        yield context.new_page()


def test_an_image_is_chosen_or_named(page: Page, user: User) -> None:
    page.goto(LAUNCH)
    python, mine = (page.locator(f"[data-environment='{name}']") for name in ("Python", "My environments"))
    expect(python).to_contain_text("Python and JupyterLab")
    expect(python).to_contain_text("On 1 of 3 hosts already; the others pull it first, about 1.99 GiB.")
    page.get_by_text("1 more environment, not turned on here").click()
    expect(page.locator("#disabled-environments")).to_contain_text("TensorFlow 1.15")
    expect(page.locator("#disabled-environments")).to_contain_text("Ask an administrator to turn one on.")
    expect(page.locator("#disabled-environments")).not_to_contain_text("manage.py")
    mine.click()
    expect(mine).to_contain_text("On 1 of 3 hosts already.")
    expect(mine.locator("option:checked")).to_have_text("genomics 2")
    page.fill("#id_image_name", "gpuplatform/nobodys:1")
    expect(mine.get_by_label("Version")).to_be_disabled()
    page.press("#id_image_name", "Tab")
    expect(page.locator("#error-image_name")).to_contain_text("There is no image of this name that you may use")
    page.click("#launch-button")
    page.get_by_role("button", name="There is no image of this name").click()
    expect(page.locator("#id_image_name")).to_be_focused()
    page.fill("#id_image_name", "gpuplatform/u1/genomics:2")
    open_step(page, "Review")
    expect(page.locator("#review")).to_contain_text("genomics 2")
    launch_without_folder(page)
    expect(page.locator(".alert-success")).to_contain_text("Launched")
    assert Session.objects.get().image.owner == user
