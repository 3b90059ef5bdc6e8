"""Spec files over the API: all or nothing, a dry run, and what is said of mistakes."""

from pathlib import Path
from typing import Any

import pytest

from accounts.models import User
from deployments.models import Deployment
from folders.models import Folder
from resources.amounts.units import GIB
from sessions.models import Mount, Session
from specs.tests.worlds import URL, is_empty, make_owner, post
from tests.api import client_of

ALL_KINDS = """# All kinds in one file; the session mounts a folder that comes later.
kind: session
name: train
image: lab/pytorch:2
cpu: 2
memory: 4g
fgpu: 0.35
env: {SEED: 7}
mounts:
- folder: runs
command: python train.py
---
kind: folder
name: runs
---
kind: cluster
name: sweep
image: lab/pytorch:2
cpu: 1
memory: 1g
cluster: {size: 3}
---
kind: deployment
name: chat
image: lab/pytorch:2
command: python serve.py
cpu: 1
memory: 1g
replicas: 2
"""

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner(tmp_path: Path) -> User:
    return make_owner(tmp_path)


def test_one_file_makes_all_kinds(owner: User, tmp_path: Path, django_capture_on_commit_callbacks: Any) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        answer = post(owner, ALL_KINDS)
    assert answer.status_code == 201, answer.json()
    rows = {row["kind"]: row for row in answer.json()["documents"]}
    assert [(kind, row["line"], row["name"], row["count"]) for kind, row in rows.items()] == [
        ("session", 2, "train", 1),
        ("folder", 13, "runs", 0),
        ("cluster", 16, "sweep", 1),
        ("deployment", 23, "chat", 2),
    ]
    session = Session.objects.get(pk=rows["session"]["ids"][0])
    assert (session.name, session.fgpu, session.environment, session.command) == (
        *("train", 350, {"SEED": "7"}),
        "python train.py",
    )
    folder = Folder.objects.get(pk=rows["folder"]["ids"][0])
    assert Mount.objects.get(session=session).folder == folder
    assert any(folder.pk in path.name for path in tmp_path.rglob("*")), "its directory is made"
    assert Session.objects.get(pk=rows["cluster"]["ids"][0]).cluster.size == 3  # type: ignore[union-attr]
    assert Deployment.objects.get(pk=rows["deployment"]["ids"][0]).replicas == 2
    assert (rows["session"]["cpu"], rows["session"]["memory"], rows["session"]["fgpu"]) == (2, 4 * GIB, "0.35")


def test_a_dry_run_says_when_and_makes_nothing(owner: User, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    answer = post(owner, ALL_KINDS, dry_run=True)
    assert answer.status_code == 200, answer.json()
    rows = {row["kind"]: row for row in answer.json()["documents"]}
    assert {kind: row["ids"] for kind, row in rows.items()} == {kind: [] for kind in rows}
    assert rows["folder"]["estimate"] is None
    for kind in ("session", "cluster", "deployment"):
        assert rows[kind]["estimate"]["starts"] == "now"
        assert rows[kind]["resource_group"] == "default"
    assert is_empty()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_dry_run_explains_a_wait(owner: User) -> None:
    text = "kind: session\nimage: lab/pytorch:2\ncpu: 16\nmemory: 4g\ncount: 2\n"
    estimate = post(owner, text, dry_run=True).json()["documents"][0]["estimate"]
    assert [each["starts"] for each in estimate["sessions"]] == ["now", None]
    assert estimate["reason"]


def test_one_wrong_document_undoes_the_others(owner: User) -> None:
    text = ALL_KINDS + "---\nkind: session\nimage: lab/pytorch:2\ncpu: 9999\nmemory: 4g\n"
    answer = post(owner, text)
    assert answer.status_code == 400
    assert list(answer.json()["errors"]) == ["line 33: cpu"]
    assert is_empty()


def test_the_same_key_makes_it_once(owner: User) -> None:
    client, body = client_of(owner), {"text": ALL_KINDS}
    first, second = (client.post(URL, body, headers={"Idempotency-Key": "one"}) for _ in range(2))
    assert (first.status_code, first.json()) == (second.status_code, second.json())
    assert Session.objects.mains().count() == 2


def test_json_is_read_as_well(owner: User) -> None:
    text = '{\n\t"kind": "session",\n\t"image": "lab/pytorch:2", "cpu": 1, "memory": "1g", "fgpu": 0.1\n}'
    assert post(owner, text).status_code == 201
    assert Session.objects.get().fgpu == 100


def test_a_stranger_makes_nothing(owner: User) -> None:
    assert client_of().post(URL, {"text": ALL_KINDS}).status_code == 401
    assert is_empty()
