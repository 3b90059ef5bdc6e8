"""The form of a deployment, filled by what a folder holds, and the links that lead to it."""

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from deployments.models import Deployment, RuntimeVariant
from deployments.requests import RevisionRequest
from deployments.tests.making import make_deployment, revision_request
from deployments.tests.model_folders import DEFINITION, WRONG, make_model_folder, store_model
from folders.models import Folder
from resources.models import App, Host, Image
from sessions.launching.mounts import MountRequest
from sessions.models import Mount
from tests.factories import make_host, make_image, make_session, make_user

pytestmark = pytest.mark.django_db
NEW = "/deployments/new/"
FROM = "/deployments/from-folder/"


@pytest.fixture
def owner() -> User:
    make_image(environment="LLM", reference="team/llm:1")
    make_host(gpus=1)
    return make_user()


@pytest.fixture
def pages(client: Client, owner: User) -> Client:
    client.force_login(owner)
    return client


@pytest.fixture
def place(owner: User, tmp_path: Path) -> tuple[Folder, Path]:
    return make_model_folder(owner, tmp_path, host=Host.objects.get())


def text_of(client: Client, address: str, **query: str) -> str:
    answer = client.get(address, query)
    assert answer.status_code == 200
    return unescape(answer.content.decode())


def field(page: str, name: str) -> str:
    """Return what a field of the form shows."""
    found = re.search(rf'name="{name}"(?:[^>]* value="([^"]*)"|[^>]*>\s*([^<]*)</textarea>)', page)
    return (found[1] or found[2] or "") if found else ""


def chosen(page: str, name: str) -> str:
    """Return the label of the chosen option."""
    found = re.search(rf'name="{name}".*?</select>', page, re.DOTALL)
    option = re.search(r"<option[^>]* selected>([^<]*)", found[0]) if found else None
    return option[1] if option else ""


def proposed(page: str) -> list[dict[str, Any]]:
    """Return what the buttons fill in."""
    return [json.loads(text) for text in re.findall(r'<script type="application/json">(.*?)</script>', page)]


def test_a_definition_file_fills_the_form(pages: Client, place: tuple[Folder, Path]) -> None:
    (place[1] / "model-definition.yaml").write_text(DEFINITION)
    page = text_of(pages, NEW, folder=place[0].pk)
    assert field(page, "name") == "digits"
    assert field(page, "command") == "exec python3 -m http.server --directory /srv/model 8000"
    assert (field(page, "port"), field(page, "health_path"), field(page, "start_seconds")) == ("8000", "/health", "120")
    assert (field(page, "environment"), field(page, "model_path")) == ("SEED=7", "/srv/model")
    assert (chosen(page, "model_folder"), chosen(page, "variant")) == ("models", "A command of your own")
    assert "metadata is not taken over: author" in page
    [values] = proposed(text_of(pages, FROM, model_folder=place[0].pk))
    assert (values["environment"], values["variant"], values["is_tcp"]) == ("SEED=7", "", False)


def test_a_model_of_mlflow_fills_the_form(pages: Client, place: tuple[Folder, Path]) -> None:
    image = make_image(environment="Science", reference="team/science:1")
    App.objects.create(image=image, name="mlflow", title="MLflow UI", port=5000)
    RuntimeVariant.objects.filter(name="mlflow").update(environment={"A": "1"})
    store_model(place[1] / "mlruns/0/1/artifacts/digits")
    store_model(place[1] / "mlruns/0/2/artifacts/letters")
    page = text_of(pages, NEW, folder=place[0].pk, path="mlruns", model="letters")
    assert (chosen(page, "variant"), chosen(page, "image")) == ("MLflow model", str(image))
    assert field(page, "environment") == "A=1\nMODEL_PATH=/srv/model/mlruns/0/2/artifacts/letters"
    assert (field(page, "port"), field(page, "health_path"), field(page, "name")) == ("5000", "/health", "letters")
    assert "mlflow models serve" in field(page, "command")
    assert len(proposed(page)) == 2
    several = text_of(pages, NEW, folder=place[0].pk)  # the user chooses
    assert (field(several, "command"), chosen(several, "model_folder")) == ("", "models")


def test_more_models_ask_no_more_of_the_database(pages: Client, place: tuple[Folder, Path]) -> None:
    folder, files = place
    asked = []
    for number in range(2):
        store_model(files / f"mlruns/0/run{number}/artifacts/digits")
        with CaptureQueriesContext(connection) as queries:
            pages.get(FROM, {"model_folder": folder.pk})
        asked.append(len(queries))
    assert asked[0] == asked[1]


def test_the_filled_form_makes_what_it_shows(pages: Client, place: tuple[Folder, Path]) -> None:
    (place[1] / "model-definition.yaml").write_text(DEFINITION)
    [values] = proposed(text_of(pages, FROM, model_folder=place[0].pk))
    given = {"replicas": 1, "cpu": 1, "memory": "1g", "shared_memory": "64m", "fgpu": "0"}
    given |= {"image": Image.objects.get().pk, "resource_group": Host.objects.get().group.pk}
    sent = {name: value for name, value in values.items() if value is not False}
    assert pages.post(NEW, given | sent).status_code == 302
    revision = Deployment.objects.get().revision
    assert revision
    assert (revision.port, revision.health_path, revision.start_seconds) == (8000, "/health", 120)
    mount = revision.mounts.get()
    assert (mount.folder, mount.path, mount.is_model, mount.is_read_only) == (place[0], "/srv/model", True, True)


def test_a_wrong_file_is_told_by_line(pages: Client, place: tuple[Folder, Path]) -> None:
    (place[1] / "model-definition.yaml").write_text(WRONG)
    for page in (text_of(pages, NEW, folder=place[0].pk), text_of(pages, FROM, model_folder=place[0].pk)):
        assert "model-definition.yaml is wrong, so nothing was filled in." in page
        assert "Line 6, <code>models[0].service.port</code>: Choose a number from 1024 to 65535." in page
        assert proposed(page) == []


def test_what_it_cannot_say_is_said(pages: Client, place: tuple[Folder, Path]) -> None:
    assert "no model-definition.yaml" in text_of(pages, FROM, model_folder=place[0].pk)
    assert "nothing" in text_of(pages, FROM, model_folder=place[0].pk, path="nothing")
    store_model(place[1] / "mlruns/0/1/artifacts/<b>", flavor="spark")
    answer = pages.get(FROM, {"model_folder": place[0].pk}).content.decode()
    assert "&lt;b&gt;" in answer
    assert "python_function" in answer
    assert "<b>" not in answer


def test_strangers_see_nothing_of_a_folder(client: Client, place: tuple[Folder, Path]) -> None:
    (place[1] / "model-definition.yaml").write_text(DEFINITION)
    client.force_login(make_user())
    for path, query in ((FROM, "model_folder"), (NEW, "folder"), ("/deployments/offer/", "folder")):
        for folder in (place[0].pk, "", "\x00", "x" * 16):
            page = text_of(client, path, **{query: folder})
            assert "http.server" not in page
            assert "Deploy this model" not in page


def test_the_page_of_a_folder_leads_to_the_form(pages: Client, place: tuple[Folder, Path]) -> None:
    address = f"/folders/{place[0].pk}/"
    assert "deploy-model" not in text_of(pages, address)
    store_model(place[1] / "mlruns/0/1/artifacts/digits")
    (place[1] / "model-definition.yaml").write_text(DEFINITION)
    assert f'href="{NEW}?folder={place[0].pk}"' in text_of(pages, address)
    assert "deploy-model" not in text_of(pages, address, path="mlruns/0")
    inner = text_of(pages, address, path="mlruns/0/1/artifacts/digits")
    link = f"{NEW}?folder={place[0].pk}&path=mlruns%2F0%2F1%2Fartifacts%2Fdigits"
    assert f'href="{link}"' in inner
    assert "mlruns/0/1/artifacts/digits" in field(text_of(pages, link), "environment")


def test_the_page_of_a_session_leads_to_the_form(pages: Client, owner: User, place: tuple[Folder, Path]) -> None:
    session = make_session(owner=owner)
    Mount.objects.create(session=session, folder=place[0], folder_name="models", path="/home/work/models")
    [address] = re.findall(r'hx-get="(/deployments/offer/[^"]*)"', text_of(pages, f"/sessions/{session.pk}/"))
    assert "Deploy this model" not in text_of(pages, address)
    store_model(place[1] / "mlruns/0/1/artifacts/digits")
    assert f'href="{NEW}?folder={place[0].pk}"' in text_of(pages, address)


def test_a_revision_keeps_where_the_model_is_mounted(pages: Client, owner: User, place: tuple[Folder, Path]) -> None:
    mount = MountRequest(folder=place[0], path="/mnt/m", is_read_only=False)
    asked: RevisionRequest = revision_request(model_folder=mount, image=Image.objects.get())
    deployment = make_deployment(owner, host=Host.objects.get(), revision=asked)
    address = f"/deployments/{deployment.pk}/revisions/new/"
    page = text_of(pages, address)
    assert field(page, "model_path") == "/mnt/m"
    names = ("command", "port", "cpu", "memory", "shared_memory", "fgpu", "health_path", "start_seconds")
    sent = {name: field(page, name) for name in (*names, "interval_seconds", "timeout_seconds", "retries")}
    sent |= {"image": str(Image.objects.get().pk), "model_folder": place[0].pk, "model_path": "/mnt/n"}
    assert pages.post(address, sent).status_code == 302
    row = deployment.revisions.get(number=2).mounts.get()
    assert (row.path, row.is_read_only) == ("/mnt/n", False)
    refused = pages.post(address, sent | {"model_path": "/etc"})
    assert refused.status_code == 422
    assert "/etc" in refused.content.decode()
