"""What runs as a spec file: the same again where it is carried out, and no secrets."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from accounts.models import User
from deployments.models import Deployment, Revision
from resources import clock
from sessions.launching import services as sessions
from sessions.models import Cluster, Mount, Session
from specs.tests.test_spec_files import ALL_KINDS
from specs.tests.worlds import make_owner, post
from tests.api import client_of
from tests.factories import make_project, make_user, run_session

VARIED = """kind: session
name: train
image: lab/pytorch:2
resource_groups: [default]
project: vision
cpu: 2
memory: 1536m
shared_memory: 512m
fgpu: "0.35"
gpu_model: Simulated GPU
min_gpu_memory: 1g
priority: 3
preemptible: true
time_limit: 90m
env: {SEED: "7", OFF: "no"}
command: |
  echo "a: b" # c
  exit 3
---
kind: cluster
name: sweep
image: lab/pytorch:2
cpu: 1
memory: 1g
command: train
cluster: {size: 2, max_size: 3, mode: any, runs_on_all: true, max_restarts: 1, main: {cpu: 2, memory: 2g}}
---
kind: deployment
name: chat
image: lab/pytorch:2
command: python serve.py
port: 9000
cpu: 1
memory: 1g
fgpu: 0.5
replicas: 0
public: false
sticky: cookie
max_surge: 2
allowed_origins: [https://app.example.org]
strategy: canary
canary_steps: [10, 50]
health: {path: /health, retries: 5}
"""
pytestmark = pytest.mark.django_db


@pytest.fixture
def owner(tmp_path: Path) -> User:
    owner = make_owner(tmp_path)
    make_project(owner, name="vision")
    owner.policy.__class__.objects.update(max_priority=50)
    return owner


def spec_of(reader: User, row: Session | Deployment) -> str:
    kind = "sessions" if isinstance(row, Session) else "deployments"
    answer = client_of(reader).get(f"/api/v1/{kind}/{row.pk}/spec/")
    assert answer.status_code == 200, answer.json()
    spec: str = answer.json()["spec"]
    return spec


def stored(row: Any) -> dict[str, Any]:
    """Return what a row has of its own, without what is another's each time."""
    others = ("_at", "id", "key")
    fields = [field for field in row._meta.concrete_fields if not field.is_relation]
    return {field.name: getattr(row, field.attname) for field in fields if not field.name.endswith(others)}


def rows() -> list[Any]:
    """Return what is live, without clusters' own rows of those that ended."""
    live: list[Any] = [*Session.objects.live().order_by("name", "rank"), *Deployment.objects.filter(ended_at=None)]
    clusters = Cluster.objects.filter(pk__in=[each.cluster_id for each in live if isinstance(each, Session)])
    return [stored(each) for each in (*live, *clusters)]


@pytest.mark.parametrize("text", [ALL_KINDS, VARIED], ids=["all kinds", "all fields"])
def test_what_is_exported_runs_as_the_same(owner: User, text: str) -> None:
    answer = post(owner, text)
    assert answer.status_code == 201, answer.json()
    before, found = rows(), [*Session.objects.mains().order_by("name"), *Deployment.objects.all()]
    mounts = list(Mount.objects.values_list("folder", "path", "is_read_only"))
    spec = "---\n".join(spec_of(owner, each) for each in found)
    for session in Session.objects.all():
        sessions.terminate(session, actor=owner)
    Deployment.objects.update(ended_at=clock.now(), replicas=0)
    again = post(owner, spec)
    assert again.status_code == 201, (again.json(), spec)
    assert rows() == before
    assert list(Mount.objects.values_list("folder", "path", "is_read_only")) == mounts * 2
    first, second = Revision.objects.order_by("created_at")
    assert stored(first) == stored(second)


def test_values_of_secrets_are_left_out(owner: User) -> None:
    secrets = {"HF_TOKEN": "hf_abc", "AWS_SECRET_ACCESS_KEY": "abc", "DB_PASSWORD": "pw", "SEED": "7"}
    session = run_session(owner=owner, environment=secrets)
    spec = spec_of(owner, session)
    assert yaml.safe_load(spec)["env"] == {"SEED": "7"}
    assert "# HF_TOKEN was set, too" in spec
    assert not [value for value in ("hf_abc", "abc", "pw") if f" {value}" in spec]


def test_others_see_neither_command_nor_variables(owner: User) -> None:
    session = run_session(owner=owner, environment={"SEED": "7"}, command="train", kind="batch")
    seen = yaml.safe_load(spec_of(make_user(is_superuser=True), session))
    assert not {"env", "command"} & seen.keys()
    assert yaml.safe_load(spec_of(owner, session)).keys() >= {"env", "command"}


def test_a_stranger_finds_nothing(owner: User) -> None:
    session = run_session(owner=owner)
    assert client_of(make_user()).get(f"/api/v1/sessions/{session.pk}/spec/").status_code == 404
    assert client_of(make_user()).get("/api/v1/deployments/aaaaaaaaaaaaaaaa/spec/").status_code == 404
