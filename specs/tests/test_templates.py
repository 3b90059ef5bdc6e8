"""Launch templates: parameters are filled in, mistakes are told at them, versions stay, and strangers see nothing."""

import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.db import connection
from rest_framework.exceptions import ValidationError

from accounts.models import AuditEntry, User
from deployments.models import Deployment
from folders.models import StorageRoot
from sessions.models import Session
from specs import template_launches
from specs.launch_templates import services
from specs.models import LaunchTemplate, TemplateLaunch, TemplateVersion
from specs.tests.worlds import make_owner, post
from tests.api import client_of
from tests.factories import make_folder, make_policy, make_project, make_session, make_user
from tests.wait import SECONDS, until

URL = "/api/v1/templates/"
LAUNCH: dict[str, Any] = {
    "kind": "session",
    "image": "lab/pytorch:2",
    "cpu": "${{ cores }}",
    "memory": "${{ ram }}",
    "fgpu": "${{ gpu }}",
    "env": {"LR": "${{ lr }}", "DEBUG": "${{ debug }}"},
    "mounts": [{"folder": "${{ data }}"}],
    "command": "python train.py --lr ${{ lr }} --note ${{note}} $HOME ${HOME}",
}
PARAMETERS: list[dict[str, Any]] = [
    {"name": "lr", "type": "decimal", "default": "0.1", "min": 0, "max": 1, "help": "Learning rate"},
    {"name": "cores", "type": "cpu", "default": 2},
    {"name": "ram", "type": "memory", "default": "4g", "max": "8g"},
    {"name": "gpu", "type": "fgpu", "default": "0.5"},
    {"name": "debug", "type": "boolean", "default": False},
    {"name": "data", "type": "folder", "required": False},
    {"name": "note", "type": "text"},
]
BODY = {"name": "train", "description": "Our run", "parameters": PARAMETERS, "launch": LAUNCH}
pytestmark = pytest.mark.django_db


@pytest.fixture
def owner(tmp_path: Path) -> User:
    return make_owner(tmp_path)


def made(user: User, **changes: Any) -> LaunchTemplate:
    answer = client_of(user).post(URL, {**BODY, **changes})
    assert answer.status_code == 201, answer.json()
    return LaunchTemplate.objects.get(pk=answer.json()["id"])


def launch(user: User, template: LaunchTemplate, values: dict[str, Any], **options: Any) -> Any:
    return client_of(user).post(f"{URL}{template.pk}/launch/", {"values": values, **options})


def refused(user: User, **changes: Any) -> dict[str, list[str]]:
    answer = client_of(user).post(URL, {**BODY, **changes})
    assert answer.status_code == 400, answer.json()
    errors: dict[str, list[str]] = answer.json()["errors"]
    return errors


def test_values_make_an_ordinary_session(owner: User) -> None:
    make_folder(owner, name="data", root=StorageRoot.objects.get())
    template = made(owner)
    values = {"lr": 0.25, "ram": "6g", "debug": True, "data": "data", "note": "a b; rm -rf $X"}
    answer = launch(owner, template, values)
    assert answer.status_code == 201, answer.json()
    session = Session.objects.get()
    assert answer.json()["ids"] == [session.pk]
    assert (session.cpu, session.memory, session.fgpu) == (2, 6 * 2**30, 500)
    assert session.environment == {"LR": "0.25", "DEBUG": "true"}
    assert session.command == "python train.py --lr 0.25 --note 'a b; rm -rf $X' $HOME ${HOME}"
    assert [each.folder.name for each in session.mounts.all() if each.folder] == ["data"]


def test_what_is_left_out_is_the_default_or_nothing(owner: User) -> None:
    assert launch(owner, made(owner), {"note": "x"}).status_code == 201
    session = Session.objects.get()
    assert (session.environment, session.mounts.count()) == ({"LR": "0.1", "DEBUG": "false"}, 0)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({}, "note"),
        ({"note": "x", "lr": 2}, "lr"),
        ({"note": "x", "lr": "much"}, "lr"),
        ({"note": "x", "ram": "9g"}, "ram"),
        ({"note": "x", "ram": "lots"}, "ram"),
        ({"note": "x", "cores": 100000}, "cores"),  # what the launch itself refuses
        ({"note": "x", "gpu": "50"}, "gpu"),
        ({"note": "x", "debug": "perhaps"}, "debug"),
        ({"note": "x", "data": "nothing-here"}, "data"),
        ({"note": "x", "other": 1}, "other"),
        ({"note": ["x"]}, "note"),
        ({"note": "x\0"}, "note"),
    ],
)
def test_a_mistake_is_told_at_its_parameter(owner: User, values: dict[str, Any], name: str) -> None:
    answer = launch(owner, made(owner), values)
    assert answer.status_code == 400
    assert list(answer.json()["errors"]) == [f"values.{name}"]
    assert not Session.objects.exists()


@pytest.mark.parametrize(
    ("parameter", "good", "bad"),
    [
        ({"type": "text"}, "a b", "x" * 5000),
        ({"type": "integer", "min": 1, "max": 9}, "9", "10"),
        ({"type": "decimal", "max": "0.5"}, "1e-5", "NaN"),
        ({"type": "choice", "choices": ["a", 8]}, 8, "b"),
        ({"type": "boolean"}, "true", "maybe"),
        ({"type": "cpu"}, 1, 0),
        ({"type": "memory", "min": "512m"}, "1g", "1m"),
        ({"type": "fgpu", "max": 1}, "0.5", "1.01"),
        ({"type": "folder"}, "data", []),
    ],
)
def test_each_type_takes_its_values(owner: User, parameter: dict[str, Any], good: Any, bad: Any) -> None:
    launched = {"kind": "session", "image": "lab/pytorch:2", "cpu": 1, "memory": "1g", "env": {"X": "${{ x }}"}}
    template = made(owner, parameters=[{"name": "x", **parameter}], launch=launched)
    assert launch(owner, template, {"x": good}).status_code == 201
    assert Session.objects.get().environment == {"X": str(good).replace("1e-5", "0.00001")}
    assert list(launch(owner, template, {"x": bad}).json()["errors"]) == ["values.x"]


def test_a_dry_run_launches_and_counts_nothing(owner: User) -> None:
    template = made(owner)
    answer = launch(owner, template, {"note": "x"}, dry_run=True)
    assert (answer.status_code, answer.json()["memory"]) == (200, 4 * 2**30)
    template.refresh_from_db()
    assert (Session.objects.count(), template.launches, TemplateLaunch.objects.count()) == (0, 0, 0)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": ""}, "name"),
        ({"icon": "skull"}, "icon"),
        ({"launch": {**LAUNCH, "kind": "folder"}}, "launch.kind"),
        ({"launch": {**LAUNCH, "name": "${{ nothing }}"}}, "launch.name"),
        ({"launch": {**LAUNCH, "colour": "red"}}, "launch.colour"),
        ({"launch": {**LAUNCH, "image": "no/such:1"}}, "launch.image"),
        ({"launch": {**LAUNCH, "env": {**LAUNCH["env"], "HF_TOKEN": "hf_abc"}}}, "launch.env.HF_TOKEN"),
        ({"launch": {**LAUNCH, "env": {**LAUNCH["env"], "HF_TOKEN": "${{ lr }}"}}}, "launch.env.HF_TOKEN"),
        ({"parameters": [*PARAMETERS, {"name": "unused", "type": "text"}]}, "parameters"),
        ({"parameters": [*PARAMETERS, PARAMETERS[0]]}, "parameters"),
        ({"parameters": [{**PARAMETERS[0], "default": 2}, *PARAMETERS[1:]]}, "parameters.0.default"),
        ({"parameters": [{**PARAMETERS[0], "min": "low"}, *PARAMETERS[1:]]}, "parameters.0.min"),
        ({"parameters": [{**PARAMETERS[0], "type": "choice"}, *PARAMETERS[1:]]}, "parameters.0.choices"),
        ({"parameters": [{**PARAMETERS[0], "name": "L R"}, *PARAMETERS[1:]]}, "parameters.0.name"),
        ({"everybody": True}, "everybody"),
        ({"project": "nobodys"}, "project"),
        ({"secret": 1}, "secret"),
    ],
)
def test_a_template_that_cannot_work_is_refused(owner: User, changes: dict[str, Any], field: str) -> None:
    assert list(refused(owner, **changes)) == [field]
    assert not LaunchTemplate.objects.exists()


@pytest.mark.parametrize("launch", [[1], "x", {"kind": "session", "env": {"A": "x" * 70_000}}, {"kind": ["session"]}])
def test_hostile_bodies_are_refused(owner: User, launch: Any) -> None:
    assert refused(owner, launch=launch, parameters=[])
    deep: Any = "x"
    for _ in range(300):
        deep = [deep]
    assert "launch" in refused(owner, launch={"kind": "session", "env": deep}, parameters=[])
    assert client_of(owner).post(URL, [1]).status_code == 400
    assert client_of(owner).post(URL, {**BODY, "launch": {**LAUNCH, "name": "${{" + " " * 60_000}}).status_code == 400


def test_secrets_are_parameters_without_a_default(owner: User) -> None:
    env = {"HF_TOKEN": "${{ token }}"}
    launched = {"kind": "session", "image": "lab/pytorch:2", "cpu": 1, "memory": "1g", "env": env}
    template = made(owner, parameters=[{"name": "token", "type": "text"}], launch=launched)
    assert launch(owner, template, {"token": "hf_abc"}).status_code == 201
    assert Session.objects.get().environment == {"HF_TOKEN": "hf_abc"}
    assert "hf_abc" not in template.current.text


def test_each_change_is_a_version(owner: User) -> None:
    template, client = made(owner), client_of(owner)
    address = f"{URL}{template.pk}/"
    first = client.get(address).json()["current"]["spec"]
    changed = client.patch(address, {"description": "Better", "icon": "gpu"})
    assert (changed.json()["version"], changed.json()["description"]) == (2, "Better")
    assert client.patch(address, {"icon": "gpu"}).json()["version"] == 2  # says the same
    assert client.get(f"{address}versions/1/").json()["spec"] == first
    assert [each["number"] for each in client.get(f"{address}versions/").json()["results"]] == [2, 1]
    back = client.post(f"{address}make-current/", {"version": 1}).json()
    assert (back["version"], back["description"], back["icon"]) == (1, "Our run", "play")
    assert client.patch(address, {"name": "third"}).json()["version"] == 3
    assert client.get(f"{address}versions/9/").status_code == 404
    assert client.post(f"{address}make-current/", {"version": -1}).status_code == 404
    assert client.patch(address, {"launch": {}}).status_code == 400


def test_the_oldest_versions_go(owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "MAX_VERSIONS", 2)
    template = made(owner)
    for text in ("b", "c"):
        client_of(owner).patch(f"{URL}{template.pk}/", {"description": text})
    assert list(template.versions.values_list("number", flat=True)) == [3, 2]


def test_a_version_that_is_removed_meanwhile_is_not_made_current(owner: User) -> None:
    template = made(owner)
    client_of(owner).patch(f"{URL}{template.pk}/", {"description": "b"})
    gone = template.versions.get(number=1)
    TemplateVersion.objects.filter(pk=gone.pk).delete()
    with pytest.raises(ValidationError, match="gone"):
        services.make_current(template, gone, actor=owner)
    template.refresh_from_db()
    assert template.current.number == 2
    LaunchTemplate.objects.all().delete()
    with pytest.raises(ValidationError, match="deleted"):
        services.make_current(template, gone, actor=owner)


def test_a_change_of_what_was_read_before_is_refused(owner: User) -> None:
    template, client = made(owner), client_of(owner)
    address = f"{URL}{template.pk}/"
    etag = client.get(address)["ETag"]
    assert client.patch(address, {"description": "b"}, headers={"If-Match": etag}).status_code == 200
    assert client.patch(address, {"description": "c"}, headers={"If-Match": etag}).status_code == 412
    assert client.patch(address, {"icon": "gpu"}, headers={"If-Match": "*"}).json()["description"] == "b"


@pytest.mark.django_db(transaction=True)
def test_two_changes_at_once_both_count(owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    template = made(owner)
    has_read, may_go_on = threading.Event(), threading.Event()
    content_of = services.content_of

    def paused(version: TemplateVersion) -> dict[str, Any]:
        found = content_of(version)
        if threading.current_thread() is first:
            has_read.set()
            assert may_go_on.wait(SECONDS)
        return found

    def change(**fields: str) -> None:
        assert client_of(owner).patch(f"{URL}{template.pk}/", fields).status_code == 200
        connection.close()

    monkeypatch.setattr(services, "content_of", paused)
    first = threading.Thread(target=change, kwargs={"description": "b"})
    second = threading.Thread(target=change, kwargs={"icon": "gpu"})
    first.start()
    assert has_read.wait(SECONDS)
    second.start()
    until(lambda: _is_locked() or not second.is_alive())
    may_go_on.set()
    first.join()
    second.join()
    template.refresh_from_db()
    assert (template.description, template.icon) == ("b", "gpu")


def _is_locked() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return bool(cursor.fetchone()[0])


def test_a_user_has_a_limited_number(owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "MAX_TEMPLATES", 1)
    made(owner)
    assert client_of(owner).post(URL, {**BODY, "name": "two"}).status_code == 400
    assert LaunchTemplate.objects.count() == 1


def test_a_name_is_given_once(owner: User) -> None:
    made(owner)
    assert list(refused(owner)) == ["name"]
    other = made(owner, name="other")
    assert client_of(owner).patch(f"{URL}{other.pk}/", {"name": "train"}).status_code == 400


def test_sessions_say_their_template_after_it_is_deleted(owner: User) -> None:
    template = made(owner)
    launch(owner, template, {"note": "x"})
    template.refresh_from_db()
    assert template.launches == 1
    address = f"/api/v1/sessions/{Session.objects.get().pk}/spec/"
    origin = {"id": template.pk, "name": "train", "version": 1}
    assert client_of(owner).get(address).json()["template"] == origin
    assert client_of(owner).delete(f"{URL}{template.pk}/").status_code == 204
    assert client_of(owner).get(address).json()["template"] == {**origin, "id": None}


def test_members_use_and_managers_change_those_of_projects(owner: User) -> None:
    member, manager = make_user(), make_user()
    make_project(owner, member, managers=[manager], name="vision")
    template = made(manager, project="vision")
    address = f"{URL}{template.pk}/"
    assert refused(member, project="vision") == {"project": ["You manage no project of this name."]}
    assert client_of(member).get(address).json()["project"] == "vision"
    assert client_of(member).patch(address, {"icon": "gpu"}).status_code == 404
    assert client_of(member).delete(address).status_code == 404
    assert launch(member, template, {"note": "x"}).status_code == 201
    assert client_of(manager).patch(address, {"icon": "gpu"}).json()["version"] == 2
    actions = AuditEntry.objects.filter(object_id=template.pk).order_by("pk").values_list("action", flat=True)
    assert list(actions) == ["added", "changed"]


def test_superadmins_share_with_everybody(owner: User) -> None:
    admin, user = make_user(is_superuser=True), make_user()
    template = made(admin, everybody=True)
    address = f"{URL}{template.pk}/"
    assert client_of(user).get(address).json()["everybody"] is True
    for verb in ("patch", "delete"):
        assert getattr(client_of(user), verb)(address, {}).status_code == 404
    own = made(owner, name="own")
    assert client_of(user).get(f"{URL}{own.pk}/").status_code == 404
    assert client_of(admin).patch(f"{URL}{own.pk}/", {"everybody": True}).json()["owner"] is None
    assert client_of(admin).delete(address).status_code == 204


def test_a_stranger_sees_nothing(owner: User) -> None:
    template, stranger = made(owner), client_of(make_user())
    assert stranger.get(URL).json()["results"] == []
    for path in ("", "versions/", "versions/1/"):
        assert stranger.get(f"{URL}{template.pk}/{path}").status_code == 404
    assert stranger.post(f"{URL}{template.pk}/launch/", {"values": {"note": "x"}}).status_code == 404
    assert stranger.post(f"{URL}{template.pk}/make-current/", {"version": 1}).status_code == 404


def test_a_template_gives_no_rights(owner: User) -> None:
    admin, user = make_user(is_superuser=True), make_user(policy=make_policy(memory=2**30))
    template = made(admin, everybody=True)
    answer = launch(user, template, {"note": "x"})
    assert list(answer.json()["errors"]) == ["values.ram"]


def test_templates_are_found_by_their_texts(owner: User) -> None:
    made(owner)
    often = made(owner, name="often", description="Fine tuning")
    launch(owner, often, {"note": "x"})
    names = [[each["name"] for each in client_of(owner).get(URL + query).json()["results"]] for query in ("", "?q=TUN")]
    assert names == [["often", "train"], ["often"]]


def test_an_export_is_imported_as_the_same(owner: User) -> None:
    template, other = made(owner, icon="gpu"), make_user()
    spec = client_of(owner).get(f"{URL}{template.pk}/").json()["current"]["spec"]
    assert yaml.safe_load(spec)["kind"] == "template"
    answer = post(other, spec)
    assert answer.status_code == 201, answer.json()
    copy = LaunchTemplate.objects.get(owner=other)
    assert (copy.current.text, copy.icon, answer.json()["documents"][0]["ids"]) == (spec, "gpu", [copy.pk])
    assert post(other, spec.replace("Our run", "Mine")).status_code == 201
    copy.refresh_from_db()
    assert (copy.version, copy.description) == (2, "Mine")
    wrong = post(other, spec.replace("lab/pytorch:2", "no/such:1"))
    assert [name.partition(": ")[2] for name in wrong.json()["errors"]] == ["launch.image"]
    assert post(other, spec.replace("train", "dry"), dry_run=True).status_code == 200
    assert LaunchTemplate.objects.filter(owner=other).count() == 1


def test_clusters_and_deployments_are_launched(owner: User) -> None:
    sized = {"image": "lab/pytorch:2", "cpu": 1, "memory": "1g", "command": "serve"}
    size = [{"name": "size", "type": "integer", "min": 1, "max": 2}]
    cluster = made(owner, parameters=size, launch={**sized, "kind": "cluster", "cluster": {"size": "${{ size }}"}})
    assert launch(owner, cluster, {"size": "2"}).status_code == 201
    serve = {**sized, "kind": "deployment", "name": "chat", "replicas": "${{ size }}"}
    deployment = made(owner, name="serve", parameters=size, launch=serve)
    assert launch(owner, deployment, {"size": 1}).status_code == 201
    assert TemplateLaunch.objects.get(deployment=Deployment.objects.get()).name == "serve"
    assert TemplateLaunch.objects.exclude(session=None).count() == 1


def test_an_older_version_of_another_kind_is_launched(owner: User) -> None:
    template = made(owner)
    serving = {"kind": "deployment", "name": "${{ name }}", "image": "lab/pytorch:2", "command": "serve", "port": 8000}
    changed = {"launch": serving, "parameters": [{"name": "name", "type": "text"}]}
    assert client_of(owner).patch(f"{URL}{template.pk}/", changed).json()["kind"] == "deployment"
    answer = launch(owner, template, {"note": "x"}, version=1)
    assert answer.status_code == 201, answer.json()
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    assert TemplateLaunch.objects.get().session_id == answer.json()["ids"][0]
    template_launches.record_named(owner, f"{template.pk}:1", [session := make_session(owner=owner)])
    assert TemplateLaunch.objects.get(session=session).number == 1
