"""A deployment is tried in a real browser: its page, the data plane, and a server of OpenAI's API behind it."""

import json
import re
from collections.abc import Iterator
from typing import Final

import pytest
from playwright.sync_api import Browser, Page, expect

from deployments import services
from deployments.models import Deployment, DeploymentToken
from deployments.tests.openai_server import ENDLESS, MODEL, Seen, openai_server
from deployments.tests.served_here import SUBNETS, served_here
from resources.models import Host
from tests.browser import allow_errors, signed_in
from tests.factories import make_host, make_user
from tests.live import LiveServer, serving
from tests.wait import SECONDS

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]

HERE: Final = "try-host"


@pytest.fixture
def host(transactional_db: None) -> Host:
    """Where the replicas are, and the web process."""
    return make_host(name=HERE)


@pytest.fixture(scope="module")
def web(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A web process with its data plane, for all tests: none knows another's deployments."""
    log = tmp_path_factory.mktemp("web") / "web.log"
    with serving(log, COMPUTE_SESSION_SUBNETS=SUBNETS, COMPUTE_HOST_NAME=HERE) as running:
        yield running


@pytest.fixture
def parrot() -> Iterator[tuple[int, Seen]]:
    """A server that says what it is told."""
    with openai_server() as running:
        yield running


def open_chat(page: Page, deployment: Deployment, query: str = "") -> None:
    """Open the page and wait until it knows the model."""
    page.goto(f"/deployments/{deployment.pk}/try/{query}")
    for model in page.locator("[data-model]").all():
        expect(model).to_have_value(MODEL)


def test_a_chat_streams_stops_and_stays_in_the_tab(
    browser: Browser, web: LiveServer, host: Host, parrot: tuple[int, Seen]
) -> None:
    owner, (port, seen) = make_user(), parrot
    deployment = served_here(owner, host, port, name="chat")
    with signed_in(browser, web, owner) as context:
        page = context.new_page()
        page.goto(f"/deployments/{deployment.pk}/")
        page.get_by_role("link", name="Try it").click()
        expect(page.locator("[data-model]")).to_have_value(MODEL)
        page.locator("#settings summary").click()
        page.get_by_label("Temperature").fill("0.5")
        page.get_by_label("Tokens at most").fill("64")
        page.get_by_label("System prompt").fill("Be a parrot.")
        page.get_by_label("Message").fill("hello there")
        page.get_by_label("Message").press("Control+Enter")
        answers = page.locator(".is-assistant .try-text")
        expect(answers).to_have_text(["hello there"])
        expect(page.locator("[data-figures]")).to_contain_text("3 + 2 tokens")
        asked = seen.bodies[-1]
        assert asked["messages"] == [
            {"role": "system", "content": "Be a parrot."},
            {"role": "user", "content": "hello there"},
        ]
        assert (asked["model"], asked["temperature"], asked["max_tokens"]) == (MODEL, 0.5, 64)
        assert all("gpd_" not in json.dumps(headers) and "cookie" not in headers for headers in seen.headers)

        page.get_by_label("Message").fill(ENDLESS)
        page.get_by_role("button", name="Send").click()
        expect(answers).to_have_text(["hello there", ENDLESS])
        page.keyboard.press("Escape")
        assert seen.hung_up.wait(SECONDS)
        expect(page.get_by_role("button", name="Stop")).to_be_hidden()
        page.reload()
        expect(answers).to_have_text(["hello there", ENDLESS])
        page.get_by_label("Message").fill(ENDLESS)
        page.get_by_label("Message").press("Control+Enter")
        expect(answers).to_have_count(3)
        page.get_by_role("button", name="New conversation").click()
        expect(page.get_by_role("button", name="Stop")).to_be_hidden()
        expect(page.get_by_text("Nothing was said yet.")).to_be_visible()
        page.reload()
        expect(page.locator("[data-model]")).to_have_value(MODEL)
        expect(answers).to_have_count(0)
        assert DeploymentToken.objects.filter(is_trial=True, name="Try it").count() == 1
        assert "gpd_" not in page.evaluate("JSON.stringify([{...sessionStorage}, {...localStorage}, document.cookie])")


def test_one_message_goes_to_two_side_by_side(
    browser: Browser, web: LiveServer, host: Host, parrot: tuple[int, Seen]
) -> None:
    owner = make_user()
    with openai_server("well, ") as (other_port, _):
        first = served_here(owner, host, parrot[0], name="chat")
        second = served_here(owner, host, other_port, name="other")
        with signed_in(browser, web, owner) as context:
            page = context.new_page()
            open_chat(page, first)
            page.get_by_label("Compare with").select_option(second.pk)
            page.get_by_role("button", name="Side by side").click()
            expect(page.locator("[data-model]")).to_have_count(2)
            for model in page.locator("[data-model]").all():
                expect(model).to_have_value(MODEL)
            page.get_by_label("Message").fill("good day")
            page.get_by_label("Message").press("Control+Enter")
            answers = page.locator(".is-assistant .try-text")
            expect(answers).to_have_text(["good day", "well, good day"])
            page.set_viewport_size({"width": 390, "height": 844})
            assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_conversation_is_copied_for_programs(
    browser: Browser, web: LiveServer, host: Host, parrot: tuple[int, Seen]
) -> None:
    owner = make_user()
    deployment = served_here(owner, host, parrot[0], name="chat")
    with signed_in(browser, web, owner) as context:
        page = context.new_page()
        open_chat(page, deployment)
        page.get_by_label("Message").fill("it's me")
        curl = page.get_by_role("button", name="Copy as curl").get_attribute("data-copy") or ""
        assert f"{origin_at(web, deployment)}/v1/chat/completions" in curl
        assert '-H "Authorization: Bearer gpd_..."' in curl
        assert "it'\\''s me" in curl
        python = page.get_by_role("button", name="Copy as Python").get_attribute("data-copy") or ""
        compile(python, "example", "exec")
        assert f'base_url="{origin_at(web, deployment)}/v1"' in python
        assert '{"role": "user", "content": "it\'s me"}' in python


def test_what_is_wrong_is_said_in_words(
    browser: Browser, web: LiveServer, host: Host, parrot: tuple[int, Seen]
) -> None:
    owner = make_user()
    deployment = served_here(owner, host, parrot[0], name="chat")
    with signed_in(browser, web, owner) as context:
        allow_errors(context, r"status of (401|429|500|503)|ERR_|CORS")
        page = context.new_page()
        open_chat(page, deployment)
        error, message = page.locator("[data-error]"), page.get_by_label("Message")
        message.fill("status 500")
        message.press("Control+Enter")
        expect(error).to_have_text("It answered with status 500. As you asked.")
        expect(message).to_have_value("status 500")
        message.fill("status 429")
        message.press("Control+Enter")
        expect(error).to_have_text("It takes no more requests now. As you asked.")
        DeploymentToken.objects.all().delete()  # as if another tab had got another one
        services.change(deployment, {"queue": 7}, actor=owner)
        message.fill("again")
        message.press("Control+Enter")
        expect(page.locator(".is-assistant .try-text")).to_have_text(["again"])
        services.set_replicas(deployment, 0, actor=owner)
        deployment.replica_rows.get().session.endpoints.update(state="CLOSED")
        services.change(deployment, {"queue": 8}, actor=owner)
        message.fill("anybody?")
        message.press("Control+Enter")
        expect(error).to_contain_text("It cannot serve now.")
        services.end(deployment, actor=owner)
        message.fill("gone?")
        message.press("Control+Enter")
        expect(error).to_contain_text(re.compile("cannot be reached|status 410|gave no token"))


def test_any_request_is_sent_by_the_form(
    browser: Browser, web: LiveServer, host: Host, parrot: tuple[int, Seen]
) -> None:
    owner, (port, seen) = make_user(), parrot
    deployment = served_here(owner, host, port, name="model", variant="mlflow")
    with signed_in(browser, web, owner) as context:
        allow_errors(context, r"status of 404")
        page = context.new_page()
        page.goto(f"/deployments/{deployment.pk}/try/")
        page.get_by_label("Path").fill("v1")
        page.get_by_role("button", name="Send").click()
        expect(page.locator("#error")).to_have_text("A path begins with /.")
        page.get_by_label("Path").fill("/nothing?x=1")
        page.get_by_label("Headers", exact=True).fill("X-Mine: yes\nAuthorization: Basic eA==")
        page.get_by_label("Path").press("Control+Enter")
        expect(page.locator("#response-facts")).to_contain_text("404")
        expect(page.locator("#response-body")).to_contain_text("There is no /nothing?x=1.")
        assert (seen.headers[-1]["x-mine"], seen.headers[-1]["authorization"]) == ("yes", "Basic eA==")
        assert "x-api-key" not in seen.headers[-1]
        page.get_by_label("Method").select_option("POST")
        page.get_by_label("Path").fill("/v1/chat/completions")
        page.get_by_label("Body").fill('{"messages": [{"role": "user", "content": "hi"}]}')
        page.get_by_role("button", name="Send").click()
        expect(page.locator("#response-facts")).to_contain_text("200")
        expect(page.locator("#response-body")).to_contain_text('"content": "hi"')
        page.locator("#response-headers-part summary").click()
        expect(page.locator("#response-headers")).to_contain_text("content-type: application/json")
        curl = page.get_by_role("button", name="Copy as curl").get_attribute("data-copy") or ""
        assert curl.startswith(f"curl -X POST '{origin_at(web, deployment)}/v1/chat/completions'")


def origin_at(web: LiveServer, deployment: Deployment) -> str:
    """Return the deployment's address at the test's web process."""
    return f"http://{deployment.label}.apps.localhost:{web.port}"
