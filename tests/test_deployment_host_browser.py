"""A browser at a deployment's own host name: it signs in there, is served, and is refused once the name is gone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from deployments import hosts
from deployments.tests.openai_server import openai_server
from deployments.tests.served_here import SUBNETS, served_here
from resources.models import Host
from tests.browser import allow_errors, signed_in
from tests.factories import make_host, make_user
from tests.live import LiveServer, serving
from tests.wait import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]
NAME = "models.localhost"  # which browsers take for this machine


@pytest.fixture
def host(transactional_db: None) -> Host:
    """Where the replica is."""
    return make_host()


@pytest.fixture
def web(host: Host, tmp_path: Path) -> Iterator[LiveServer]:
    """A web process with its data plane, on that host."""
    with serving(tmp_path / "web.log", COMPUTE_SESSION_SUBNETS=SUBNETS, COMPUTE_HOST_NAME=host.name) as running:
        yield running


def test_a_browser_signs_in_at_the_deployments_name(browser: Browser, web: LiveServer, host: Host) -> None:
    owner, admin = make_user(), make_user(is_superuser=True)
    with openai_server() as (port, _), signed_in(browser, web, owner) as context:
        deployment = served_here(owner, host, port, name="chat")
        hosts.set_hosts(deployment, [NAME], actor=admin)
        page = context.new_page()
        url = f"http://{NAME}:{web.port}/v1/models"
        page.goto(f"/deployments/{deployment.pk}/")
        expect(page.locator("#address")).to_have_value(f"http://{NAME}:{web.port}")
        until(lambda: page.goto(url).status == 200)  # type: ignore[union-attr]
        assert page.url == url
        found = {each["name"]: each["domain"] for each in context.cookies(url)}
        assert found["gp_app"] == NAME
        hosts.set_hosts(deployment, [], actor=admin)
        allow_errors(context, "status of 4(00|21)")
        until(lambda: page.goto(url).status in (400, 421))  # type: ignore[union-attr]
