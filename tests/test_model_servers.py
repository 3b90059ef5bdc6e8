"""Real servers of models in real containers, deployed from what their folder holds, through their address."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import docker
import openai
import pytest
import requests
from django.conf import settings
from openai.types.chat import ChatCompletionUserMessageParam
from playwright.sync_api import Browser, Page, expect

from accounts.models import User
from deployments.access import tokens
from deployments.models import Deployment, DeploymentState, ReplicaHealth
from deployments.replicas.reconciliation import reconcile_all
from deployments.tests.model_folders import make_model_folder
from folders.models import Folder, HostRoot
from resources.models import App
from scheduler.cycle.passes import run_pass
from tests.api import client_of
from tests.browser import allow_errors, signed_in
from tests.factories import make_image, make_user
from tests.fgpu_sessions import InContainer, group_of
from tests.images import ensure_images
from tests.live import LiveServer
from tests.llama_image import MAKE_MODEL, ensure_llama_image
from tests.near_host import near_host
from tests.wait import SECONDS, until

pytestmark = [pytest.mark.docker, pytest.mark.django_db(transaction=True)]
SCIENCE: Final = "gpuplatform/scikit-learn:1.7"  # has MLflow and FastAPI
HELLO: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": "hello to you"}]
# Repeats what it is told, a word an event, as servers of OpenAI's API stream; holds a request until it is let go on.
PARROT: Final = """
import itertools, json, pathlib, time
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
app, probes = FastAPI(), itertools.count()
@app.get("/ready")
def ready():
    pathlib.Path("/tmp/probes").write_text(str(next(probes)))
@app.get("/hold")
def hold():
    def parts():
        yield "begun"
        while not pathlib.Path("/tmp/go").exists():
            time.sleep(0.05)
        yield " end"
    return StreamingResponse(parts())
@app.post("/sum")
def add(numbers: list[int]):
    return {"sum": sum(numbers)}
@app.post("/v1/chat/completions")
def chat(asked: dict):
    def events():
        for word in asked["messages"][-1]["content"].split():
            delta = {"index": 0, "delta": {"content": word}, "finish_reason": None}
            yield "data: " + json.dumps({"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m",
                                         "choices": [delta]}) + "\\n\\n"
        yield "data: [DONE]\\n\\n"
    return StreamingResponse(events(), media_type="text/event-stream")
"""
DEFINITION: Final = """
models:
  - name: parrot
    model_path: /models/app
    service:
      start_command: [python3, -m, uvicorn, --app-dir, /models/app, --host, 0.0.0.0, --port, "8000", "parrot:app"]
      port: 8000
      health_check: {path: /ready, interval: 1, max_wait_time: 1, max_retries: 3, initial_delay: 600}
"""
DOUBLER: Final = """
import mlflow
class Doubler(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input, params=None):
        return [2 * x for x in model_input["x"].tolist()]
with mlflow.start_run(run_name="first"):
    mlflow.pyfunc.log_model(name="doubler", python_model=Doubler())
"""


@pytest.fixture
def web(tmp_path: Path, transactional_db: None) -> Iterator[LiveServer]:
    with near_host(tmp_path / "web.log") as running:
        yield running


@pytest.fixture
def owner(web: LiveServer) -> User:
    group = group_of(settings.COMPUTE_HOST_NAME, 1)
    group.cpu_overcommit = Decimal(4)
    group.save()
    return make_user()


@pytest.fixture
def place(owner: User, tmp_path: Path) -> tuple[Folder, Path]:
    """A folder of the owner's that the host has, and the directory of its files."""
    folder, files = make_model_folder(owner, tmp_path)
    until(lambda: HostRoot.objects.filter(root=folder.root, is_present=True).exists())
    return folder, files


def made_in(image: str, files: Path, command: str) -> None:
    """Have a program in a container of this image write into the folder, as a session does."""
    with closing(docker.from_env()) as engine:
        engine.containers.run(
            image,
            ["sh", "-c", command],
            volumes=[f"{files}:/home/work/models"],
            working_dir="/home/work/models",
            user=f"{os.stat(files).st_uid}",
            environment={"HOME": "/tmp"},
            remove=True,
        )


def proposed(owner: User, folder: Folder) -> dict[str, Any]:
    """Return the draft of the only model in the folder."""
    [draft] = client_of(owner).get("/api/v1/deployment-drafts/", {"folder": folder.pk}).json()["drafts"]
    return dict(draft)


def deployed(owner: User, image: str, revision: dict[str, Any]) -> Deployment:
    """Make a deployment, and work until it serves."""
    group = group_of(settings.COMPUTE_HOST_NAME, 1)
    asked = {"name": "served", "image": image, "cpu": 1, "memory": "2g", "resource_group": group.name}
    answer = client_of(owner).post("/api/v1/deployments/", asked | revision, format="json")
    assert answer.status_code == 201, answer.json()
    deployment = Deployment.objects.get(pk=answer.json()["id"])

    def serves() -> bool:
        reconcile_all()
        run_pass()
        deployment.refresh_from_db()
        return deployment.state == DeploymentState.HEALTHY

    until(serves, seconds=5 * SECONDS)  # MLflow takes half a minute of a whole core to start
    return deployment


def headers_of(web: LiveServer, deployment: Deployment) -> dict[str, str]:
    """Return the headers that name the deployment, as DNS would lead there, and open it once its proxy knows them."""
    secret = tokens.create_token(deployment, name="test", actor=deployment.owner).secret
    host = f"{deployment.label}.{settings.COMPUTE_APPS_DOMAIN}:{web.port}"
    headers = {"Host": host, "Authorization": f"Bearer {secret}"}
    until(lambda: requests.get(web.url, headers=headers, timeout=SECONDS).status_code not in (401, 503))
    return headers


def streamed(web: LiveServer, deployment: Deployment, model: str) -> list[str]:
    """Return the parts that OpenAI's client gets from the deployment's address."""
    headers = headers_of(web, deployment)
    key = headers.pop("Authorization").removeprefix("Bearer ")
    client = openai.OpenAI(
        base_url=f"{web.url}/v1", api_key=key, default_headers=headers, timeout=SECONDS, max_retries=0
    )
    with client:
        parts = client.chat.completions.create(model=model, messages=HELLO, stream=True, max_tokens=16)
        return [part.choices[0].delta.content for part in parts if part.choices and part.choices[0].delta.content]


def sent(page: Page, body: str) -> Page:
    """Send a body by the form of requests; return the page."""
    page.get_by_label("Body").fill(body)
    page.get_by_role("button", name="Send").click()
    return page


@contextmanager
def form_of(browser: Browser, web: LiveServer, deployment: Deployment, path: str, errors: str) -> Iterator[Page]:
    """Open the form of requests for POST to a path; the browser reports these errors, as the server's own."""
    with signed_in(browser, web, deployment.owner) as context:
        allow_errors(context, errors)
        page = context.new_page()
        page.goto(f"/deployments/{deployment.pk}/try/?as=request")
        page.get_by_label("Method").select_option("POST")
        page.get_by_label("Path").fill(path)
        yield page


def expect_response(page: Page, status: str, body: str) -> None:
    expect(page.locator("#response-facts")).to_contain_text(status, timeout=SECONDS * 1000)
    expect(page.locator("#response-body")).to_contain_text(body)


@pytest.mark.browser
def test_a_defined_program_streams_and_is_probed_while_full(
    web: LiveServer, owner: User, place: tuple[Folder, Path], browser: Browser
) -> None:
    ensure_images(["scikit-learn 1.7"])
    make_image(reference=SCIENCE)
    folder, files = place
    (files / "app").mkdir()
    (files / "app/parrot.py").write_text(PARROT)
    (files / "model-definition.yaml").write_text(DEFINITION)
    deployment = deployed(owner, SCIENCE, proposed(owner, folder)["revision"] | {"concurrency": 1, "queue": 0})
    assert streamed(web, deployment, "m") == ["hello", "to", "you"]

    replica, headers = deployment.replica_rows.get(), headers_of(web, deployment)
    container = InContainer(replica.session)
    with requests.get(f"{web.url}/hold", headers=headers, timeout=SECONDS, stream=True) as held:
        assert held.raw.read(5) == b"begun"
        assert requests.get(f"{web.url}/ready", headers=headers, timeout=SECONDS).status_code == 429
        before = int(container.run("cat /tmp/probes")[1])
        until(lambda: int(container.run("cat /tmp/probes")[1] or 0) > before)
        replica.refresh_from_db()
        assert replica.health == ReplicaHealth.HEALTHY
        container.run("touch /tmp/go")
        assert held.raw.read() == b" end"
    with form_of(browser, web, deployment, "/sum", "status of 422") as page:
        expect_response(sent(page, "[1, 2]"), "200", '"sum":3')
        expect_response(sent(page, '["no number"]'), "422", "Input should be a valid integer")


@pytest.mark.long(3)
@pytest.mark.browser
def test_a_run_of_mlflow_is_served(web: LiveServer, owner: User, place: tuple[Folder, Path], browser: Browser) -> None:
    ensure_images(["scikit-learn 1.7"])
    image = make_image(reference=SCIENCE)
    App.objects.create(image=image, name="mlflow", title="MLflow UI", port=5000)
    folder, files = place
    (files / "train.py").write_text(DOUBLER)
    made_in(SCIENCE, files, "python3 train.py")
    draft = proposed(owner, folder)
    assert (draft["name"], draft["run"], draft["flavors"]) == ("doubler", "first", ["python_function"])
    deployment = deployed(owner, SCIENCE, draft["revision"])
    headers, asked = headers_of(web, deployment), {"dataframe_split": {"columns": ["x"], "data": [[1], [2]]}}
    answer = requests.post(f"{web.url}/invocations", json=asked, headers=headers, timeout=SECONDS)
    assert answer.json() == {"predictions": [2, 4]}
    with form_of(browser, web, deployment, "/invocations", "status of 400") as page:
        expect_response(sent(page, json.dumps(asked)), "200", '"predictions"')
        expect(page.locator("#response-body")).to_contain_text("4")
        expect_response(sent(page, '{"inputs": 1, "instances": 1}'), "400", "error_code")


@pytest.mark.long(3)
@pytest.mark.browser
def test_llama_streams_to_programs_and_the_page(
    web: LiveServer, owner: User, place: tuple[Folder, Path], browser: Browser
) -> None:
    image = ensure_llama_image()
    make_image(reference=image)
    folder, files = place
    made_in(image, files, f"{MAKE_MODEL} tiny.gguf")
    deployment = deployed(owner, image, {"variant": "llama.cpp", "model_folder": {"folder": folder.pk}})
    assert streamed(web, deployment, "tiny")
    with signed_in(browser, web, owner) as context:
        page = context.new_page()
        page.goto(f"/deployments/{deployment.pk}/try/")
        expect(page.locator("[data-model]")).to_have_value(re.compile("tiny[.]gguf"))
        page.locator("#settings summary").click()
        page.get_by_label("Tokens at most").fill("8")
        page.get_by_label("Message").fill("hello")
        page.get_by_label("Message").press("Control+Enter")
        expect(page.locator("[data-figures]")).to_contain_text("8 tokens")
