"""A form that is refused in overload keeps what was typed, and is sent again by itself."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from accounts.models import User
from gpuplatform.serving.admission.refusal import refusal
from tests.browser import allow_errors, signed_in
from tests.factories import make_user
from tests.live import LiveServer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]


@pytest.fixture
def user() -> User:
    return make_user()


@pytest.fixture
def page(browser: Browser, server: LiveServer, user: User) -> Iterator[Page]:
    with signed_in(browser, server, user) as context:
        yield context.new_page()


def test_a_refused_form_is_sent_again_by_itself(page: Page, user: User, server: LiveServer) -> None:
    refused: list[str] = []

    def refuse_once(route: Route) -> None:
        request = route.request
        if request.method != "POST" or refused:
            route.continue_()
            return
        refused.append(request.url)
        headers = [(name.encode(), value.encode()) for name, value in request.all_headers().items()]
        headers.append((b"host", server.url.partition("//")[2].encode()))
        scope = {"method": "POST", "path": "/accounts/", "headers": headers}
        response = refusal(scope, (request.post_data or "").encode(), is_silent=False)
        route.fulfill(status=503, headers=dict(response.items()), body=response.content)

    allow_errors(page.context, "status of 503 ")
    page.goto("/accounts/")
    page.route(page.url, refuse_once)
    page.locator("[name=first_name]").fill('Kim "K" <b>')
    page.locator("form:has([name=first_name]) [type=submit]").click()
    expect(page.get_by_role("heading", name="In a moment")).to_be_visible()
    expect(page.get_by_role("textbox", name="First name")).to_have_value('Kim "K" <b>')
    user.refresh_from_db()
    assert refused
    assert user.first_name == 'Kim "K" <b>'
