"""The page "From a file": what it says of a file, the wizard filled in by one, and all of it made."""

from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from accounts.models import User
from folders.models import Folder, StorageRoot
from resources.amounts.units import GIB
from sessions.models import Session
from specs.tests.test_formats import SLURM
from specs.tests.test_spec_export import VARIED
from specs.tests.worlds import is_empty, make_owner
from tests.factories import make_folder, make_project

URL = "/sessions/launch/file/"
CLUSTER = """kind: cluster
name: sweep
image: lab/pytorch:2
cpu: 1
memory: 1g
fgpu: 0.5
time_limit: 4h
env: {SEED: 7}
mounts: [{folder: data, path: in, read_only: true}]
command: python train.py
cluster: {size: 2, max_size: 3, runs_on_all: true, main: {cpu: 2, fgpu: 0}}
"""
pytestmark = pytest.mark.django_db


@pytest.fixture
def owner(tmp_path: Path) -> User:
    owner = make_owner(tmp_path)
    make_project(owner, name="vision")
    owner.policy.__class__.objects.update(max_priority=50)
    return owner


@pytest.fixture
def page(client: Client, owner: User) -> Client:
    client.force_login(owner)
    return client


def send(page: Client, text: str, button: str = "check", **fields: str) -> Any:
    return page.post(URL, {"text": text.replace("\n", "\r\n"), button: "1", **fields})


def test_the_wizard_leads_to_the_page(page: Client) -> None:
    assert f'href="{URL}"' in page.get("/sessions/launch/").content.decode()
    assert page.get(URL).status_code == 200


def test_the_page_says_what_would_be_made(page: Client) -> None:
    answer = send(page, VARIED)
    html = answer.content.decode()
    assert answer.status_code == 200
    assert [row["outcome"].document.name for row in answer.context["rows"]] == ["train", "sweep", "chat"]
    assert "Starts now" in html
    assert 'name="make"' in html
    assert 'name="fill"' not in html
    assert is_empty()


def test_mistakes_stand_with_their_lines(page: Client) -> None:
    answer = send(page, CLUSTER + "mod: 1\n", "make")
    assert answer.status_code == 422
    assert "Line 12, <code>mod</code>: There is no such field." in answer.content.decode()
    assert "mod: 1" in answer.content.decode(), "what was pasted stays"
    assert is_empty()


def test_an_uploaded_script_shows_its_translation(page: Client, owner: User) -> None:
    script = SLURM.replace("gpu:sim:2", "gpu:2").encode()
    answer = page.post(URL, {"file": SimpleUploadedFile("train.sh", script), "image": "pytorch", "check": "1"})
    html = answer.content.decode()
    assert answer.status_code == 200
    assert "kind: array" in html
    assert "left out" in html
    assert "name: my-job" in html


def test_a_session_fills_the_wizard(page: Client, owner: User) -> None:
    folder = make_folder(owner, name="data", root=StorageRoot.objects.get())
    answer = send(page, CLUSTER, "fill")
    assert answer.status_code == 200
    form = answer.context["form"]
    values = {name: form[name].value() for name in form.fields}
    assert {name: str(values[name]) for name in ("name", "cpu", "memory", "fgpu", "time_limit", "command")} == {
        **{"name": "sweep", "cpu": "1", "memory": "1 GiB", "fgpu": "0.5", "time_limit": "4h"},
        "command": "python train.py",
    }
    cluster = ("cluster_size", "cluster_max_size", "cluster_main_cpu", "cluster_main_fgpu", "cluster_runs_on_all")
    assert [values[name] for name in cluster] == [2, 3, 2, "0", True]
    assert (values["environment"], values["mounts"]) == ([("SEED", "7")], {folder.pk: ("in", True)})
    assert Session.objects.count() == 0


def test_all_of_it_is_made_by_a_button(page: Client) -> None:
    answer = send(page, "kind: folder\nname: runs\n---\n" + VARIED, "make")
    assert (answer.status_code, answer["Location"]) == (302, "/sessions/")
    assert Folder.objects.get().name == "runs"
    session = Session.objects.get(name="train")
    assert (session.memory, session.command) == (1.5 * GIB, 'echo "a: b" # c\nexit 3')


def test_a_deployment_leads_to_the_deployments(page: Client) -> None:
    text = VARIED.rpartition("---\n")[2]
    assert send(page, text, "make")["Location"] == "/deployments/"


def test_a_stranger_is_sent_to_the_sign_in_page(client: Client) -> None:
    assert "sign-in" in client.get(URL)["Location"]


@pytest.mark.parametrize("priority", [0, 30])
def test_a_priority_is_not_lost_in_the_wizard(page: Client, owner: User, priority: int) -> None:
    make_folder(owner, name="data", root=StorageRoot.objects.get())
    text = f"{CLUSTER}priority: {priority}\n"
    assert 'name="fill"' in send(page, CLUSTER).content.decode()
    for button in ("check", "fill"):
        html = send(page, text, button).content.decode()
        assert 'name="fill"' not in html
        assert 'name="make"' in html
    send(page, text, "make")
    assert set(Session.objects.values_list("priority", flat=True)) == {priority}
