"""A deployment in a real browser: made by its form, watched as its replica becomes healthy, and given a token."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from deployments import events, services
from deployments.models import Deployment, DeploymentState, DeploymentToken, Replica, ReplicaHealth, RuntimeVariant
from deployments.tests.making import make_deployment
from deployments.tests.model_folders import DEFINITION, WRONG, make_model_folder, store_model
from deployments.tests.serving import make_replica
from proxy.authorization.signing import digest
from sessions.lifecycle import Reason, Status
from sessions.models import Mount
from tests.browser import signed_in
from tests.factories import make_host, make_image, make_user, run_session
from tests.live import LiveServer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]


def test_a_deployment_is_made_watched_and_given_a_token(browser: Browser, server: LiveServer) -> None:
    owner, _ = make_user(), make_host(gpus=1)
    make_image(environment="LLM", reference="team/llm:1")
    with signed_in(browser, server, owner) as context:
        page = context.new_page()
        page.goto("/")
        page.get_by_role("link", name="Deployments").click()
        page.get_by_role("link", name="New deployment").first.click()
        fill(page)
        deployment = Deployment.objects.get()
        expect(page.get_by_role("heading", name="chat", exact=True)).to_be_visible()
        expect(page.locator("#address")).to_have_value(re.compile(f"//{deployment.label}[.]"))
        expect(page.locator("html")).to_have_attribute("data-connection", "live")
        replica = make_replica(deployment, health=ReplicaHealth.STARTING.value)
        expect(page.locator(f"#replica-{replica.pk}")).to_contain_text("not yet")
        Replica.objects.update(health=ReplicaHealth.HEALTHY.value)
        Deployment.objects.update(state=DeploymentState.HEALTHY)
        events.changed(deployment.pk)
        expect(page.locator(f"#replica-{replica.pk}")).to_contain_text("gets requests")
        expect(page.get_by_text("Serves", exact=True)).to_be_visible()
        secret = make_token(page)
        assert DeploymentToken.objects.get().digest == digest(secret)
        page.goto(f"/deployments/{deployment.pk}/?tab=tokens")
        expect(page.locator("#tokens")).to_contain_text("shop")
        scale_by_load(page)
        expect(page.locator("#scaling")).to_contain_text("1 to 4 replicas; 16 requests a replica")
        assert secret not in page.content()
        page.locator("#tab-overview").click()
        expect(page.locator(f"#replica-{replica.pk}")).to_be_visible()
        replica.session.move_to(Status.ERROR, Reason.OUT_OF_MEMORY)
        expect(page.locator(f"#replica-{replica.pk}")).to_have_count(0)
        page.set_viewport_size({"width": 360, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_tabs_show_the_end_by_socket_or_without(browser: Browser, server: LiveServer) -> None:
    deployment = make_deployment()
    with signed_in(browser, server, deployment.owner) as context:
        tabs = [context.new_page() for _ in range(3)]
        tabs[2].route_web_socket(re.compile("/ws/"), lambda socket: socket.close())
        for page, state in zip(tabs, ("live", "live", "lost"), strict=True):
            page.goto(f"{server.url}/deployments/{deployment.pk}/")
            expect(page.locator("html")).to_have_attribute("data-connection", state)
        services.end(deployment, actor=deployment.owner)
        for page in tabs:
            expect(page.locator(".session-head[data-final]")).to_be_visible()
        tabs[0].locator("#tab-settings").click()
        tabs[0].go_back()
        expect(tabs[0].locator(".session-head[data-final]")).to_be_visible()
        tabs[2].reload()  # of what has ended, nothing is fetched but while the socket is down
        with tabs[2].expect_request(lambda request: request.headers.get("hx-request") == "true"):
            pass


def fill(page: Page) -> None:
    """Make a deployment called chat; a runtime fills what was not typed, and a wrong name is said at its field."""
    page.get_by_label("Name", exact=True).fill("Chat")
    page.get_by_label("Runtime").select_option(label="vLLM")
    command, port = page.get_by_label("Command", exact=True), page.get_by_label("Port", exact=True)
    expect(command).to_have_value(re.compile("exec vllm serve"))
    port.fill("9000")
    page.get_by_label("Runtime").select_option(label="MLflow model")
    expect(command).to_have_value(re.compile("exec mlflow"))
    expect(port).to_have_value("9000")
    page.get_by_label("Environment", exact=True).select_option(index=1)
    page.get_by_label("fGPU").fill("0.5")
    page.get_by_role("button", name="Deploy", exact=True).click()
    expect(page.locator("#id_name_error")).to_contain_text("part of an address")
    page.get_by_label("Name", exact=True).fill("chat")
    page.get_by_role("button", name="Deploy", exact=True).click()


def scale_by_load(page: Page) -> None:
    """Have the deployment follow its load, for 16 requests a replica."""
    page.locator("#tab-scaling").click()
    page.locator("#change-scaling").get_by_label("At most", exact=True).fill("4")
    page.locator("#change-scaling").get_by_role("button", name="Save").click()
    page.locator("#add-rule").get_by_label("For one replica").fill("16")
    page.get_by_role("button", name="Add rule").click()


def make_token(page: Page) -> str:
    """Make a token called shop and return its secret."""
    page.locator("#tab-tokens").click()
    page.locator("#new-token").get_by_label("Name").fill("shop")
    page.get_by_role("button", name="Make token").click()
    return page.get_by_label("The new token").input_value()


def test_a_folder_fills_the_form(browser: Browser, server: LiveServer, tmp_path: Path) -> None:
    owner, host = make_user(), make_host(gpus=1)
    make_image(environment="LLM", reference="team/llm:1")
    folder, files = make_model_folder(owner, tmp_path, host=host)
    store_model(files / "mlruns/0/1/artifacts/digits")
    with signed_in(browser, server, owner) as context:
        page = context.new_page()
        page.goto(f"/folders/{folder.pk}/")
        page.get_by_role("link", name="Deploy this model").click()
        expect(page.get_by_label("Runtime")).to_have_value(str(RuntimeVariant.objects.get(name="mlflow").pk))
        variables = page.get_by_label("Environment variables")
        expect(variables).to_have_value("MODEL_PATH=/srv/model/mlruns/0/1/artifacts/digits")

        (files / "model-definition.yaml").write_text(WRONG)
        page.goto("/deployments/new/")
        page.get_by_label("Port", exact=True).fill("9000")
        page.get_by_label("Model folder").select_option(label="models")
        expect(page.locator("#drafts")).to_contain_text("Line 6, models[0].service.port")
        (files / "model-definition.yaml").write_text(DEFINITION)
        files.joinpath("mlruns").rename(files / "runs")
        page.get_by_role("button", name="Read from folder").click()
        expect(page.get_by_label("Port", exact=True)).to_have_value("8000")
        expect(variables).to_have_value("SEED=7")
        files.joinpath("runs").rename(files / "mlruns")
        page.get_by_role("button", name="Read from folder").click()
        expect(page.locator("#drafts li")).to_have_count(2)
        with page.expect_response("**/deployments/new/placement/"):
            page.locator("#drafts li").last.get_by_role("button", name="Fill in").click()
        expect(page.get_by_label("Port", exact=True)).to_have_value("5000")
        expect(page.get_by_label("Command", exact=True)).to_have_value(re.compile("mlflow models serve"))
        page.reload()
        page.get_by_label("Port", exact=True).fill("9000")
        (files / "model-definition.yaml").unlink()
        page.get_by_label("Model folder").select_option(label="models")
        expect(page.get_by_label("Command", exact=True)).to_have_value(re.compile("mlflow models serve"))
        expect(page.get_by_label("Port", exact=True)).to_have_value("9000")
        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_session_leads_to_the_model_it_stored(browser: Browser, server: LiveServer, tmp_path: Path) -> None:
    owner, host = make_user(), make_host()
    folder, files = make_model_folder(owner, tmp_path, host=host)
    store_model(files / "mlruns/0/1/artifacts/digits")
    session = run_session(host=host, owner=owner)
    Mount.objects.create(session=session, folder=folder, folder_name="models", path="/home/work/models")
    with signed_in(browser, server, owner) as context:
        page = context.new_page()
        offers: list[str] = []
        page.on("request", lambda request: offers.append(request.url) if "/offer/" in request.url else None)
        page.goto(f"/sessions/{session.pk}/")
        link = page.get_by_role("link", name="Deploy this model")
        expect(link).to_be_visible()
        for _ in range(3):
            with page.expect_response(lambda response: response.url.endswith(f"/sessions/{session.pk}/")):
                page.evaluate("htmx.trigger('#live', 'live:refresh')")
        link.click()
        expect(page.get_by_label("Name", exact=True)).to_have_value("digits")
        assert len(offers) == 1  # what the session does updates its page often
