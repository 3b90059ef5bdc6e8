"""Launching while images are built: what is shown, what is refused, and when it is offered."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import Browser, Page, expect

from resources.images import builds
from resources.models import BuildState, Image, ImageBuild
from sessions.models import Session
from tests.api import client_of
from tests.browser import signed_in
from tests.factories import make_group, make_host, make_image, make_user
from tests.live import LiveServer
from tests.web import browser_of, text_of
from tests.wizard import launch_without_folder

LAUNCH = "/sessions/launch/"


def make_build(image: Image, state: BuildState = BuildState.BUILDING, **values: Any) -> ImageBuild:
    values = {"step": 7, "steps": 23, "started_at": timezone.now(), "last_duration": timedelta(minutes=2)} | values
    return ImageBuild.objects.create(image=image, state=state, **values)


@pytest.fixture
def image() -> Image:
    make_host(group=make_group(), gpus=1)
    return make_image(environment="Python", version="3.11", is_default=True)


def form_of(image: Image) -> dict[str, Any]:
    amounts = {"cpu": "1", "memory": "1g", "shared_memory": "64m", "fgpu": "0", "count": "1"}
    return {"image": image.pk, "resource_group": make_host().group.pk, "preset": "", "name": "", **amounts}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("state", "message"),
    [
        (BuildState.BUILDING, "Python 3.11 is not ready yet: building, step 7 of 23, about 2 minutes."),
        (BuildState.QUEUED, "Python 3.11 is not ready yet: waits to be built, about 2 minutes."),
        (BuildState.FAILED, "Python 3.11 could not be built. An administrator can have it built again."),
    ],
)
def test_an_image_that_is_not_ready_is_refused(image: Image, state: BuildState, message: str) -> None:
    make_build(image, state)
    user = make_user(is_superuser=True)
    page = browser_of(user).post(LAUNCH, form_of(image))
    assert page.status_code == 422
    assert message in page.content.decode()
    group = make_host().group
    order = {"image": image.reference, "cpu": 1, "memory": "1g", "fgpu": "0", "resource_group": group.name}
    answer = client_of(user).post("/api/v1/sessions/", order, format="json")
    assert answer.status_code == 400
    assert message in str(answer.json())
    assert not Session.objects.exists()


@pytest.mark.django_db
def test_only_superadmins_read_why_a_build_failed(image: Image) -> None:
    make_build(image, BuildState.FAILED, problem="RUN pip install\nno space left")
    of_admin = text_of(browser_of(make_user(is_superuser=True)), LAUNCH)
    of_user = text_of(browser_of(make_user()), f"{LAUNCH}images/")
    assert "no space left" in of_admin
    assert "no space left" not in of_user
    assert "could not be built" in of_user
    assert "hx-get" not in of_user, "nothing changes until an administrator does something"


@pytest.mark.django_db
def test_the_form_begins_with_what_is_ready(image: Image) -> None:
    make_build(image, BuildState.QUEUED, position=0)
    ready = make_image(environment="scikit-learn", version="1.7", is_default=True)
    user = make_user(is_superuser=True)
    assert f'value="{ready.pk}" selected' in text_of(browser_of(user), LAUNCH)
    make_build(ready, BuildState.QUEUED, position=1)
    page = text_of(browser_of(user), LAUNCH)
    assert f'value="{image.pk}" selected data-unusable' in page


@pytest.fixture
def page(browser: Browser, server: LiveServer) -> Iterator[Page]:
    with signed_in(browser, server, make_user(is_superuser=True)) as context:
        yield context.new_page()


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_the_launch_page_follows_a_build_and_then_launches(image: Image, page: Page) -> None:
    build = make_build(image)
    page.goto(LAUNCH)
    item = page.locator("#image-builds li")
    button = page.locator("#launch-button")
    expect(item).to_contain_text("Python 3.11 building, step 7 of 23, about 2 minutes")
    expect(page.locator("[data-environment=Python]")).to_contain_text("not ready yet")
    expect(item.get_by_role("progressbar")).to_have_attribute("value", "7")
    expect(button).to_be_disabled()
    expect(page.get_by_text("This environment is not ready yet")).to_be_visible()
    expect(page.locator("#advice")).to_be_hidden()
    expect(page.locator("[data-environment=Python] option:checked")).to_have_text("3.11 (not ready)")
    builds.record_step(build, 12, 23)
    expect(item).to_contain_text("step 12 of 23")
    builds.fail(build, "RUN make\nno such target")
    expect(item).to_contain_text("could not be built")
    item.get_by_text("Last lines of the build").click()
    expect(item).to_contain_text("no such target")
    builds.retry(Image.objects.all())
    page.reload()
    expect(item).to_contain_text("waits to be built")
    builds.finish(build, None)
    expect(item).to_have_count(0)
    expect(page.locator("[data-environment=Python] option:checked")).to_have_text("3.11")
    expect(button).to_be_enabled()
    expect(page.locator("#advice")).to_contain_text("Starts now")
    launch_without_folder(page)
    expect(page.locator(".alert-success")).to_contain_text("Launched")
    assert Session.objects.get().image == image
