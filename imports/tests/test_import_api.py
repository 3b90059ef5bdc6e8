"""The API of imports and of their credentials, which never shows a secret."""

import pytest

from accounts.models import User
from imports.models import Import, ImportCredential
from imports.tests.making import ADDRESS, done, make_world
from sessions.models import Session
from tests.api import client_of
from tests.factories import make_user, run_session

pytestmark = pytest.mark.django_db
IMPORTS, CREDENTIALS = "/api/v1/imports/", "/api/v1/import-credentials/"


@pytest.fixture
def owner() -> User:
    return make_world()[0]


def test_a_look_is_begun_shown_and_cancelled(owner: User) -> None:
    client = client_of(owner)
    made = client.post(IMPORTS, {"address": ADDRESS})
    assert (made.status_code, made.data["target"], made.data["state"]) == (201, "LOOK", "WAITING")
    assert client.get(IMPORTS).data["results"][0]["id"] == made.data["id"]
    assert client.get(f"{IMPORTS}{made.data['id']}/options/").status_code == 400
    assert client.post(f"{IMPORTS}{made.data['id']}/cancel/").data["state"] == "CANCELLED"
    assert client_of(make_user()).get(f"{IMPORTS}{made.data['id']}/").status_code == 404


def test_an_import_is_launched_with_its_folder(owner: User) -> None:
    client = client_of(owner)
    made = client.post(IMPORTS, {"address": ADDRESS, "folder_name": "course", "ref": "dev"})
    assert (made.data["ref"], made.data["tree"]) == ("dev", "/home/work/course/r")
    done(Import.objects.get(), devcontainer={"gpu": True, "memory": 2**30}, notebooks=["a.ipynb"])
    options = client.get(f"{IMPORTS}{made.data['id']}/options/").data
    assert (options["image"], options["memory"], options["fgpu"]) == ("gpuplatform/python:3.11", 2**30, "1")
    assert options["mounts"] == [{"folder": made.data["folder"], "path": "", "read_only": None}]
    group = Session.objects.get().resource_group.name
    body = {"image": options["image"], "cpu": 1, "memory": "1g", "resource_group": group}
    launched = client.post(f"{IMPORTS}{made.data['id']}/launch/", body)
    assert (launched.status_code, launched.data[0]["status"]) == (201, "PENDING")
    refused = client.post(f"{IMPORTS}{made.data['id']}/launch/", {**body, "mounts": []})
    assert list(refused.data["errors"]) == ["mounts"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "address"),
        ({"address": "file:///etc"}, "address"),
        ({"address": ADDRESS, "folder": "none"}, "folder"),
        ({"address": ADDRESS, "session": "none"}, "session"),
        ({"address": ADDRESS, "credential": 7}, "credential"),
        ({"address": ADDRESS, "project": "none"}, "project"),
        ({"address": ADDRESS, "resource_group": "none"}, "resource_group"),
        ({"address": ADDRESS, "ref": "a..b"}, "ref"),
        ({"address": ADDRESS, "whole": True}, "whole"),
    ],
)
def test_bad_input_is_named_at_its_field(owner: User, body: dict[str, object], field: str) -> None:
    response = client_of(owner).post(IMPORTS, body)
    assert (response.status_code, list(response.data["errors"])) == (400, [field])


def test_the_session_of_another_is_no_target(owner: User) -> None:
    body = {"address": ADDRESS, "session": run_session().pk}
    assert client_of(owner).post(IMPORTS, body).status_code == 400


def test_secrets_go_in_and_never_out(owner: User) -> None:
    client = client_of(owner)
    token = {"name": "hub", "host": "GitHub.com", "kind": "token", "token": "s3cret"}
    made = client.post(CREDENTIALS, token)
    assert (made.status_code, made.data["host"]) == (201, "github.com")
    key = client.post(CREDENTIALS, {"name": "key", "host": "github.com", "kind": "ssh_key"})
    assert key.data["public_key"].startswith("ssh-ed25519 ")
    for shown in (made, client.get(CREDENTIALS), client.get(f"{CREDENTIALS}{made.data['id']}/")):
        assert "s3cret" not in str(shown.data)
    assert b"s3cret" not in bytes(ImportCredential.objects.get(name="hub").encrypted_secret)
    assert client_of(make_user()).delete(f"{CREDENTIALS}{made.data['id']}/").status_code == 404
    assert client.delete(f"{CREDENTIALS}{made.data['id']}/").status_code == 204


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"token": ""}, "token"),
        ({"token": "a b"}, "token"),
        ({"host": "https://github.com"}, "host"),
        ({"host": "-x"}, "host"),
        ({"name": ""}, "name"),
        ({"username": "a:b"}, "username"),
        ({"kind": "ssh_key"}, "token"),
        ({"kind": "ssh_key", "token": None}, "token"),
        ({"private_key": "x"}, "private_key"),
    ],
)
def test_a_bad_credential_is_refused(owner: User, changes: dict[str, object], field: str) -> None:
    body = {"name": "a", "host": "github.com", "kind": "token", "token": "t", **changes}
    response = client_of(owner).post(CREDENTIALS, body)
    assert (response.status_code, list(response.data["errors"])) == (400, [field])


def test_a_key_with_a_passphrase_is_refused(owner: User) -> None:
    bad = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbg==\n-----END OPENSSH PRIVATE KEY-----"
    body = {"name": "a", "host": "github.com", "kind": "ssh_key", "private_key": bad}
    assert list(client_of(owner).post(CREDENTIALS, body).data["errors"]) == ["private_key"]
