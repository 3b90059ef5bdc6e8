"""Drafts over the API: what a folder proposes is sent back as the body of a deployment."""

from pathlib import Path

import pytest
from rest_framework.test import APIClient

from accounts.models import User
from deployments.models import Deployment, Revision
from deployments.replicas import launching
from deployments.tests.model_folders import DEFINITION, WRONG, make_model_folder, store_model
from folders.models import Folder, FolderShare
from resources.models import Host
from tests.api import client_of
from tests.factories import make_host, make_image, make_user

URL = "/api/v1/deployment-drafts/"
pytestmark = pytest.mark.django_db


@pytest.fixture
def owner() -> User:
    make_image(reference="team/llm:1", environment="LLM")
    make_host(gpus=1)
    return make_user()


@pytest.fixture
def api(owner: User) -> APIClient:
    return client_of(owner)


@pytest.fixture
def place(owner: User, tmp_path: Path) -> tuple[Folder, Path]:
    return make_model_folder(owner, tmp_path, host=Host.objects.get())


def deploy(api: APIClient, draft: dict[str, object], **overrides: object) -> Revision:
    """Make a deployment of what was proposed."""
    body = {"name": "chat", "image": "team/llm:1", "cpu": 1, "memory": "1g", **draft["revision"], **overrides}  # type: ignore[dict-item]
    made = api.post("/api/v1/deployments/", body, format="json")
    assert made.status_code == 201, made.json()
    return Revision.objects.get(deployment=made.json()["id"])


def test_a_definition_file_becomes_a_deployment(api: APIClient, place: tuple[Folder, Path]) -> None:
    folder, files = place
    (files / "model-definition.yaml").write_text(DEFINITION)
    answer = api.get(URL, {"folder": folder.name})
    assert answer.status_code == 200, answer.json()
    assert answer.json()["is_complete"]
    [draft] = answer.json()["drafts"]
    assert (draft["name"], draft["source"], draft["problem"]) == ("digits", "model-definition.yaml", "")
    assert any("author" in note for note in draft["notes"])
    assert not Deployment.objects.exists()
    revision = deploy(api, draft)
    assert revision.command == "exec python3 -m http.server --directory /srv/model 8000"
    assert (revision.port, revision.environment, revision.health_path) == (8000, {"SEED": "7"}, "/health")
    assert (revision.start_seconds, revision.interval_seconds, revision.retries) == (120, 10, 3)
    assert revision.mounts.get().path == "/srv/model"


def test_a_model_of_mlflow_becomes_a_deployment(api: APIClient, place: tuple[Folder, Path]) -> None:
    folder, files = place
    store_model(files / "mlruns/0/models/m-1/artifacts")
    [draft] = api.get(URL, {"folder": folder.pk, "path": "mlruns"}).json()["drafts"]
    assert (draft["run"], draft["flavors"]) == ("abc123", ["python_function", "sklearn"])
    assert draft["created_at"] == "2026-01-02T03:04:05.600000Z"
    revision = deploy(api, draft)
    assert (revision.variant and revision.variant.name, revision.port) == ("mlflow", 5000)
    request = launching.launch_request(revision.deployment, revision)
    assert request.environment["MODEL_PATH"] == "/srv/model/mlruns/0/models/m-1/artifacts"
    assert request.environment["PORT"] == "5000"


def test_without_a_variable_the_folder_is_the_model(api: APIClient, place: tuple[Folder, Path]) -> None:
    store_model(place[1] / "x").joinpath("MLmodel").rename(place[1] / "MLmodel")
    [draft] = api.get(URL, {"folder": "models"}).json()["drafts"]
    revision = deploy(api, draft, env={"PORT": "1"})
    environment = launching.launch_request(revision.deployment, revision).environment
    assert environment == {"MODEL_PATH": "/srv/model", "PORT": "5000"}


def test_a_wrong_file_is_refused_at_its_line(api: APIClient, place: tuple[Folder, Path]) -> None:
    (place[1] / "model-definition.yaml").write_text(WRONG)
    answer = api.get(URL, {"folder": "models"})
    assert answer.status_code == 400
    assert answer.json()["errors"]["definition"] == [
        "model-definition.yaml, line 6, models[0].service.port: Choose a number from 1024 to 65535."
    ]


def test_a_model_that_cannot_be_served_has_no_revision(api: APIClient, place: tuple[Folder, Path]) -> None:
    store_model(place[1] / "mlruns/0/1/artifacts/m", flavor="spark")
    [draft] = api.get(URL, {"folder": "models"}).json()["drafts"]
    assert draft["revision"] is None
    assert "python_function" in draft["problem"]


def test_only_readers_of_the_folder_get_drafts(api: APIClient, place: tuple[Folder, Path]) -> None:
    other = make_user()
    stranger = client_of(other)
    assert stranger.get(URL, {"folder": place[0].pk}).status_code == 400
    assert client_of(make_user(is_superuser=True)).get(URL, {"folder": place[0].pk}).status_code == 400
    FolderShare.objects.create(folder=place[0], user=other, is_read_only=True)
    assert stranger.get(URL, {"folder": place[0].pk}).json() == {"drafts": [], "is_complete": True}
    assert api.get(URL, {"folder": "models", "path": "nothing"}).status_code == 404
    assert api.get(URL, {"folder": "models", "path": "../x"}).status_code == 400
    assert api.get(URL).status_code == 400
    assert client_of(None).get(URL, {"folder": "models"}).status_code == 401
