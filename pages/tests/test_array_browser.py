"""Arrays in a real browser: the plot by keys, a log in its place, and a row of the list that follows."""

import pytest
from playwright.sync_api import Browser, expect

from accounts.models import User
from arrays.models import Array
from arrays.tests.making import advance, finish, make_array, task_of
from resources.models import Host
from tests.browser import signed_in
from tests.factories import make_host, make_user
from tests.live import LiveServer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]


@pytest.fixture
def host() -> Host:
    return make_host(cpu=64)


@pytest.fixture
def owner(host: Host) -> User:
    return make_user()


@pytest.fixture
def array(owner: User) -> Array:
    return advance(make_array(owner, tasks={"grid": {"lr": [0.1, 0.2, 0.3]}}))


def test_keys_lead_along_the_plot_and_open_logs(
    browser: Browser, server: LiveServer, owner: User, host: Host, array: Array
) -> None:
    for index, loss in enumerate((3, 1, 2)):
        finish(task_of(array, index), host, log=f'GP_METRICS {{"loss": {loss}}}')
    advance(array)
    with signed_in(browser, server, owner, viewport={"width": 390, "height": 800}) as context:
        page = context.new_page()
        page.goto(f"/arrays/{array.pk}/")
        plot = page.get_by_role("slider", name="loss of each task")
        plot.press("Home")
        plot.press("ArrowRight")
        expect(plot).to_have_attribute("aria-valuetext", "Task 1: loss 1 at 0.2")
        expect(page.locator("[data-dot-text]")).to_have_text("Task 1: loss 1 at 0.2")
        page.get_by_role("link", name="Logs of task 2").press("Enter")
        expect(page.get_by_role("region", name="Logs of task 2")).to_contain_text('GP_METRICS {"loss": 2}')
        expect(page.get_by_role("link", name="Logs of task 2")).to_have_attribute("aria-expanded", "true")
        assert page.url.endswith("?log=2")
        assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_an_open_row_of_the_list_follows(
    browser: Browser, server: LiveServer, owner: User, host: Host, array: Array
) -> None:
    with signed_in(browser, server, owner) as context:
        page = context.new_page()
        page.add_init_script(
            """document.addEventListener("live:message", ({ detail }) => {
                if ("resources" in detail) document.documentElement.dataset.watched = "";
            });"""
        )
        page.goto("/sessions/")
        expect(page.locator("html[data-watched]")).to_be_attached()
        page.get_by_role("link", name="Tasks of sweep").press("Enter")
        tasks = page.locator(f"#tasks-{array.pk}")
        expect(tasks).to_contain_text("No task runs or has failed.")
        finish(task_of(array, 1), host, 1)
        advance(array)
        expect(tasks).to_contain_text("sweep-1 failed")
        page.reload()
        expect(tasks).to_contain_text("sweep-1 failed")
