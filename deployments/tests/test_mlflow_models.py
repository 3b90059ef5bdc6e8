"""Models that MLflow stored in a folder: found where its versions have them, described, at a bounded cost."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from accounts.models import User
from deployments.definitions import mlflow_database, mlflow_directory, services
from deployments.definitions.drafts import DefinitionError
from deployments.definitions.services import FolderDrafts
from deployments.tests.model_folders import make_model_folder, store_model
from folders.errors import FolderError
from folders.files.errors import EntryNotFoundError
from folders.models import Folder
from tests.factories import make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner(db: None) -> User:
    return make_user()


@pytest.fixture
def place(owner: User, tmp_path: Path) -> tuple[Folder, Path]:
    return make_model_folder(owner, tmp_path)


@pytest.fixture
def folder(place: tuple[Folder, Path]) -> Folder:
    return place[0]


@pytest.fixture
def files(place: tuple[Folder, Path]) -> Path:
    return place[1]


@pytest.fixture
def found(owner: User, folder: Folder) -> "Finder":
    return Finder(owner, folder)


class Finder:
    def __init__(self, owner: User, folder: Folder) -> None:
        self.owner, self.folder = owner, folder

    def __call__(self, path: str = "") -> FolderDrafts:
        return services.drafts_of(self.owner, self.folder, path)


def test_a_folder_that_is_a_model_fills_a_revision(found: Finder, files: Path) -> None:
    store_model(files / "digits")
    (files / "digits/requirements.txt").write_text("# by MLflow\nmlflow==3.1\n\n--extra-index-url x\nscikit-learn\n")
    [draft] = found("digits").drafts
    assert (draft.source, draft.name, draft.run, draft.problem) == ("digits/MLmodel", "digits", "abc123", "")
    assert draft.revision == {
        "variant": "mlflow",
        "model_path": "/srv/model",
        "environment": {"MODEL_PATH": "/srv/model/digits"},
        "health": {},
    }
    assert list(draft.flavors) == ["python_function", "sklearn"]
    assert draft.created_at
    assert draft.created_at.isoformat() == "2026-01-02T03:04:05.600000+00:00"
    assert draft.notes == ["Its packages are not installed; the environment must have them: mlflow==3.1, scikit-learn."]


def test_a_model_at_the_top_needs_no_variable(found: Finder, files: Path) -> None:
    store_model(files / "x").joinpath("MLmodel").rename(files / "MLmodel")
    [draft] = found().drafts
    assert (draft.name, draft.revision["environment"]) == ("model", {})


def test_models_of_runs_are_listed_newest_first(found: Finder, files: Path) -> None:
    store_model(files / "mlruns/0/abc123/artifacts/old", time="2025-01-01 00:00:00")
    store_model(files / "mlruns/0/models/m-1/artifacts", time="2026-02-01 00:00:00")
    store_model(files / "mlartifacts/3/abc/artifacts/a/b", time="2026-01-01 00:00:00")
    store_model(files / "elsewhere/model")
    (files / "mlruns/0/models/m-1/meta.yaml").write_text("name: digits\n")
    (files / "mlruns/0/abc123/meta.yaml").write_text("run_name: brave-colt-7\n")
    drafts = found().drafts
    assert [draft.name for draft in drafts] == ["digits", "b", "old"]
    assert [draft.run for draft in drafts] == ["brave-colt-7", "abc123", "brave-colt-7"]
    assert found("mlruns").drafts == [drafts[0], drafts[2]]
    assert found("mlruns/0/models").drafts == [drafts[0]]


def track(path: Path, *, models: str = "TABLE logged_models AS SELECT 'm-1' model_id, 'digits' name") -> None:
    """Make the database that MLflow keeps beside its directory."""
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"CREATE {models}")
        database.execute("CREATE TABLE runs AS SELECT 'abc123' run_uuid, 'brave-colt-7' name")
        database.commit()


def test_a_database_names_models_and_runs(found: Finder, files: Path) -> None:
    store_model(files / "work/mlruns/0/models/m-1/artifacts")
    track(files / "work/mlflow.db")
    for path in ("work", "work/mlruns", "work/mlruns/0/models/m-1/artifacts"):
        [draft] = found(path).drafts
        assert (draft.name, draft.run) == ("digits", "brave-colt-7")


@pytest.mark.parametrize(
    "models",
    [
        "VIEW logged_models AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i model_id, i name"
        " FROM n WHERE i = 2",
        "VIEW logged_models AS SELECT 'm-1' model_id, zeroblob(900000000) name",
        "TABLE logged_models AS SELECT 'm-1' model_id, x'ff' name",
        "TABLE other AS SELECT 1",
    ],
    ids=["endless", "huge", "no text", "missing"],
)
def test_a_hostile_database_names_nothing(found: Finder, files: Path, models: str) -> None:
    store_model(files / "mlruns/0/models/m-1/artifacts")
    track(files / "mlflow.db", models=models)
    assert found().drafts[0].name in ("m-1", "b'\\xff'")


def test_a_database_that_is_none_names_nothing(
    found: Finder, files: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store_model(files / "mlruns/0/models/m-1/artifacts")
    for content in (b"", b"SQLite format 3\x00" + b"\xff" * 5000, b"x" * 100):
        (files / "mlflow.db").write_bytes(content)
        assert found().drafts[0].name == "m-1"
    (files / "mlflow.db").unlink()
    track(tmp_path / "other.db")
    (files / "mlflow.db").symlink_to(tmp_path / "other.db")
    assert found().drafts[0].name == "m-1"
    (files / "mlflow.db").unlink()
    track(files / "mlflow.db")
    assert found().drafts[0].name == "digits"
    monkeypatch.setattr(mlflow_database, "MAX_BYTES", 100)
    assert found().drafts[0].name == "m-1"


def test_without_the_served_flavor_it_says_so(found: Finder, files: Path) -> None:
    store_model(files / "mlruns/0/1/artifacts/m", flavor="spark")
    [draft] = found().drafts
    assert "python_function" in draft.problem
    assert not draft.revision


@pytest.mark.parametrize(
    "text",
    ["[" * 1000, "- a", "flavors: {python_function: {}}\nrun_id: ../../../../x", "flavors: 7", "a: b: c", "\x00"],
)
def test_a_strange_model_file_does_no_harm(found: Finder, files: Path, text: str) -> None:
    (store_model(files / "mlruns/0/models/m/artifacts") / "MLmodel").write_text(text)
    [draft] = found().drafts
    assert draft.name == "m"
    assert draft.problem or draft.revision


def test_links_are_not_followed(found: Finder, files: Path) -> None:
    store_model(files / "model")
    (files / "mlruns").mkdir()
    (files / "mlruns/0").symlink_to(files / "model")
    (files / "mlruns/1").mkdir()
    (files / "mlruns/1/MLmodel").symlink_to(files / "model/MLmodel")
    assert found().drafts == []


def test_there_is_an_end_to_the_search(found: Finder, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        store_model(files / f"mlruns/0/run{number}/artifacts/model")
    assert len(found().drafts) == 6
    assert found().is_complete
    monkeypatch.setattr(mlflow_directory, "MAX_MODELS", 4)
    assert (len(found().drafts), found().is_complete) == (4, False)
    monkeypatch.setattr(mlflow_directory, "MAX_READ", 300)
    assert "too many models" in found().drafts[-1].problem
    monkeypatch.setattr(mlflow_directory, "MAX_DIRECTORIES", 8)
    assert (len(found().drafts), found().is_complete) == (1, False)
    (files / "mlruns/1/2/3/4/5/6/7/8").mkdir(parents=True)
    assert not found("mlruns/1").is_complete


def test_few_databases_are_read(found: Finder, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_directory, "MAX_DATABASES", 1)
    for tree in ("mlruns/a/mlruns", "mlruns/b/mlruns"):
        store_model(files / tree / "0/models/m-1/artifacts")
        track((files / tree).parent / "mlflow.db")
    assert sorted(draft.name for draft in found().drafts) == ["digits", "m-1"]
    assert not found().is_complete


def test_the_definition_file_comes_first(found: Finder, files: Path) -> None:
    store_model(files / "mlruns/0/models/m/artifacts")
    text = "models: [{name: a, model_path: /models, service: {start_command: [serve], port: 8000}}]"
    (files / "model-definition.yml").write_text(text)
    assert [draft.name for draft in found().drafts] == ["a", "m"]
    (files / "model-definition.yml").write_text("models: 1")
    with pytest.raises(DefinitionError, match=r"model-definition.yml: line 1, models: Write a list"):
        found()
    (files / "model-definition.yml").write_bytes(b"\xff")
    with pytest.raises(DefinitionError, match="not text"):
        found()
    assert [draft.name for draft in found("mlruns").drafts] == ["m"]


def test_it_is_read_by_whom_may_read(found: Finder, folder: Folder) -> None:
    with pytest.raises(EntryNotFoundError):
        found("nothing")
    with pytest.raises(FolderError):
        services.drafts_of(make_user(), folder)


@pytest.mark.parametrize("name", ["MLmodel", "mlruns", "mlartifacts", "model-definition.yaml", "model-definition.yml"])
def test_what_may_propose_is_told_by_its_name(name: str) -> None:
    assert services.proposes(["data", name], "")
    assert services.proposes([name], "below") == (not name.startswith("model-"))
    assert not services.proposes(["data"], "")
