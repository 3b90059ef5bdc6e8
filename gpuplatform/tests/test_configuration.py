"""The configuration as a file: whole, without secrets, previewed, all or nothing, and twice is no change."""

import io
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from accounts.models import AuditEntry, Project, ResourcePolicy, User
from operations.configuration import services as configuration
from operations.configuration.services import ConfigurationError
from resources.models import ElasticPool, GpuWeight, Image, Preset, Registry, ResourceGroup
from sessions.models import IdleRule
from tests.factories import (
    make_app,
    make_group,
    make_image,
    make_policy,
    make_preset,
    make_project,
    make_root,
    make_user,
)

GIB = 2**30
PYTHON = "gpuplatform/python:3.12"


@pytest.fixture
def world(db: None, settings: Settings, tmp_path: Path) -> None:
    group = make_group(name="a100")
    group.users.add(make_user(email="mina@example.org"))
    make_policy(name="students", max_sessions=1)
    project = make_project(name="vision")
    group.projects.add(project)
    make_preset(name="small", group=group)
    make_preset(name="small", group=None)
    GpuWeight.objects.create(model="NVIDIA H100", weight="2.5")
    make_app(make_image(reference=PYTHON, environment="python", version="3.12"))
    make_root(name="fast")
    secret: dict[str, Any] = {"username": "robot", "encrypted_password": b"not to be seen"}
    Registry.objects.create(name="lab", address="registry.example.org", **secret)
    make_image(reference="example/private:1", owner=make_user())
    rule = IdleRule.objects.create(name="night", idle_timeout=timedelta(hours=2))
    rule.resource_groups.add(group)
    settings.COMPUTE_PROVIDER_COMMANDS = str(tmp_path)
    programs = {name: ["machines", name] for name in ("create", "list", "delete")}
    pool = ElasticPool(group=group, provider="command", configuration=programs, failures=2, problem="no quota")
    pool.host_types = [{"name": "small", "cpus": 8, "memory": "32g", "cost_per_hour": "1.5"}]
    pool.full_clean()
    pool.save()


def rows_of(section: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(configuration.export())[section]
    return found


def changed(text: str, section: str, name: str, **values: Any) -> str:
    """Return the text with other values in the first row of this name, which may be new."""
    found = yaml.safe_load(text)
    row = next((row for row in found[section] if row.get("name") == name), None)
    if row is None:
        found[section].append(row := {"name": name})
    row.update(values)
    return yaml.safe_dump(found)


def test_an_export_has_everything_but_secrets(world: None) -> None:
    text = configuration.export()
    assert "not to be seen" not in text
    assert "password:" not in text
    assert "robot" not in text
    assert "example/private" not in text
    assert "no quota" not in text, "the state of a pool is no configuration"
    found = yaml.safe_load(text)
    assert {section.name for section in configuration.SECTIONS} == found.keys() - {"format"}
    assert all(found.values())
    (group,) = [row for row in found["resource_groups"] if row["name"] == "a100"]
    assert (group["users"], group["projects"]) == (["mina@example.org"], ["vision"])
    assert [row["resource_groups"] for row in found["idle_rules"] if row["name"] == "night"] == [["a100"]]
    assert not any("id" in row for name in found.keys() - {"format"} for row in found[name])


def test_an_unchanged_export_changes_nothing(world: None) -> None:
    text, before = configuration.export(), AuditEntry.objects.count()
    assert configuration.preview(text) == []
    assert configuration.carry_out(text, actor=None) == []
    assert (configuration.export(), AuditEntry.objects.count()) == (text, before)


def test_an_emptied_installation_gets_it_all_back(world: None) -> None:
    text = configuration.export()
    for model in (ElasticPool, GpuWeight, IdleRule, Preset, ResourceGroup, Project, Registry, Image):
        model._default_manager.all().delete()
    assert configuration.carry_out(text, actor=None)
    assert configuration.export() == text
    assert configuration.carry_out(text, actor=None) == []


def test_a_preview_says_what_the_import_does(world: None) -> None:
    root = User.objects.create_superuser("root@example.org", "a long password")
    text = changed(configuration.export(), "policies", "students", max_sessions=7, memory="64g")
    text = changed(text, "policies", "guests", cpu=2)
    planned = configuration.preview(text)
    assert not ResourcePolicy.objects.filter(name="guests").exists()
    (students,) = [change for change in planned if change.key == "students"]
    assert (students.fields["max_sessions"][1], students.is_new) == (7, False)
    assert {change.key: change.is_new for change in planned} == {"students": False, "guests": True}
    with pytest.raises(ConfigurationError, match="different by now"):
        configuration.carry_out(text, actor=root, digest="of another preview")
    assert configuration.carry_out(text, actor=root, digest=configuration.digest_of(planned)) == planned
    policy = ResourcePolicy.objects.get(name="students")
    assert (policy.max_sessions, policy.memory) == (7, 64 * GIB)
    assert AuditEntry.objects.filter(actor=root, object_type="accounts.ResourcePolicy").count() == 2
    assert configuration.preview(text) == []


def test_an_overcommit_factor_is_text_like_the_rest(world: None) -> None:
    text = changed(configuration.export(), "resource_groups", "a100", cpu_overcommit=4)
    (planned,) = configuration.carry_out(text, actor=None)
    assert planned.fields.keys() == {"cpu_overcommit"}
    assert ResourceGroup.objects.get(name="a100").core_milli == 250
    assert configuration.preview(text) == []
    with pytest.raises(ConfigurationError) as refused:
        configuration.carry_out(changed(text, "resource_groups", "a100", cpu_overcommit=float("nan")), actor=None)
    assert list(refused.value.problems) == ["resource_groups a100: cpu_overcommit"]


def test_a_file_with_errors_changes_nothing(world: None) -> None:
    text, before, entries = configuration.export(), configuration.export(), AuditEntry.objects.count()
    text = changed(text, "policies", "students", max_sessions=7)
    text = changed(text, "presets", "tiny", cpu="many", memory="1g")
    text = changed(text, "resource_groups", "a100", users=["nobody@example.org"], colour="red")
    with pytest.raises(ConfigurationError) as caught:
        configuration.carry_out(text, actor=None)
    places = set(caught.value.problems)
    assert {"presets tiny: cpu", "resource_groups a100: users", "resource_groups a100: colour"} <= places
    assert (configuration.export(), AuditEntry.objects.count()) == (before, entries)


@pytest.mark.parametrize(
    ("section", "name", "values", "place"),
    [
        ("registries", "lab", {"password": "x"}, "registries lab: password"),
        ("registries", "lab", {"username": "x"}, "registries lab: username"),
        ("registries", "lab", {"id": 1}, "registries lab: id"),
        ("images", PYTHON, {"owner": "root@example.org"}, "images gpuplatform/python:3.12: owner"),
        ("images", PYTHON, {"version": 3.10}, "images gpuplatform/python:3.12: version"),
        (
            "images",
            PYTHON,
            {"apps": [{"name": "a", "title": "A"}]},
            "images gpuplatform/python:3.12: apps 1: port",
        ),
        ("images", "example/private:1", {"environment": "R", "version": "4"}, "images example/private:1: reference"),
        ("policies", "students", {5: 1}, "policies students: 5"),
        ("policies", "students", {"max_sessions": True}, "policies students: max_sessions"),
        ("projects", "vision", {"policy": "\ud800"}, "projects vision: policy"),
        ("presets", "new\0", {"cpu": 1}, "presets new\0: name"),
    ],
)
def test_no_row_gets_what_a_preview_cannot_show(
    world: None, section: str, name: str, values: dict[Any, Any], place: str
) -> None:
    User.objects.create_superuser("root@example.org", "a long password")
    key = "reference" if section == "images" else "name"
    text = yaml.safe_dump({"format": 1, section: [{key: name, **values}]})
    before = configuration.export()
    with pytest.raises(ConfigurationError) as caught:
        configuration.carry_out(text, actor=None)
    assert place in caught.value.problems
    assert configuration.export() == before


def test_a_registry_stays_signed_in_through_an_import(world: None) -> None:
    changed_text = changed(configuration.export(), "registries", "lab", allows_http=True)
    assert len(configuration.carry_out(changed_text, actor=None)) == 1
    registry = Registry.objects.get(name="lab")
    assert (registry.allows_http, registry.username) == (True, "robot")
    assert bytes(registry.encrypted_password) == b"not to be seen"


def test_one_audit_entry_has_both_values(world: None) -> None:
    make_policy(name="staff", max_sessions=3)
    before = AuditEntry.objects.count()
    configuration.carry_out(changed(configuration.export(), "policies", "staff", max_sessions=7), actor=None)
    (entry,) = AuditEntry.objects.order_by("-pk")[: AuditEntry.objects.count() - before]
    assert (entry.action, entry.object_text, entry.changes) == ("changed", "staff", {"max_sessions": ["3", "7"]})


def test_a_default_moves_to_an_earlier_row(world: None) -> None:
    make_image(reference="example/python:3.13", environment="python", version="3.13", is_default=True)
    found = yaml.safe_load(configuration.export())
    for row in found["images"]:
        row["is_default"] = row["version"] == "3.12"
    assert {change.key for change in configuration.carry_out(yaml.safe_dump(found), actor=None)} == {
        "example/python:3.13",
        PYTHON,
    }
    assert Image.objects.get(reference=PYTHON).is_default


def test_queries_do_not_grow_with_rows(world: None, django_assert_max_num_queries: Any) -> None:
    text = configuration.export()
    with CaptureQueriesContext(connection) as few:
        configuration.preview(text)
    for _number in range(5):
        make_app(make_image(), name="lab")
        make_group().users.add(make_user())
    text = configuration.export()
    with django_assert_max_num_queries(len(few)):
        assert configuration.preview(text) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "format: 1"),
        ("- a list", "format: 1"),
        ("format: 2", "format: 1"),
        ("format: 1\ncolours: []", "no such section"),
        ("format: 1\npolicies: {a: 1}", "list of rows"),
        ("format: 1\npolicies: [1]", "list of rows"),
        ("format: 1\na: [", "no YAML"),
        ("format: 1\na: " + "[" * 5000, "no YAML"),
        ("format: 1\npolicies: [&a {name: a}, *a]", "aliases"),
        ("format: 1\npolicies: [!!python/object/apply:os.system [id]]", "no YAML"),
        ("format: 1\n#" + "x" * 2**20, "1 MiB"),
        ("format: 1\npolicies: [{cpu: 1}]", "policies 1: name"),
        ("format: 1\npolicies: [{name: [a]}]", "name"),
        ("format: 1\npolicies: [{name: no}]", "name"),
        ("format: 1\npolicies: [{name: null, cpu: 1}]", "policies 1: name"),
        ("format: 1\npolicies: [{name: 2026-13-45}]", "no YAML"),
        ("format: 1\npolicies: [{name: " + "1" * 5000 + "}]", "no YAML"),
        ("format: 1\npolicies: [{name: 0x" + "f" * 5000 + "}]", "no YAML"),
        ("format: 1\npolicies: [{name: a, cpu: 1}, {name: a, cpu: 2}]", "policies a: name: Two rows"),
        ("format: 1\npolicies: [{name: a, cpu: 1, cpu: 2}]", "“cpu” is there twice"),
        ("format: 1\npolicies: []\npolicies: []", "“policies” is there twice"),
        ("format: 1\n? [a]\n: 1", "no YAML"),
        ("format: 1\npolicies: !!bool maybe", "tags are not allowed"),
    ],
)
def test_what_is_no_configuration_is_refused(db: None, text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        configuration.preview(text)


def test_commands_show_and_import(world: None, tmp_path: Path) -> None:
    exported, shown = io.StringIO(), io.StringIO()
    call_command("export_config", stdout=exported)
    path = tmp_path / "config.yaml"
    text = changed(exported.getvalue(), "policies", "students", max_sessions=None)
    path.write_text(changed(text, "policies", "guests", cpu=2))
    call_command("import_config", str(path), stdout=shown)
    assert "+ policies guests\n" in shown.getvalue()
    assert "    cpu: 2\n" in shown.getvalue()
    assert "~ policies students\n    max_sessions: 1 -> null\n" in shown.getvalue()
    assert "add --apply" in shown.getvalue()
    assert not ResourcePolicy.objects.filter(name="guests").exists()
    call_command("import_config", str(path), "--apply", stdout=shown)
    assert ResourcePolicy.objects.get(name="guests").cpu == 2
    call_command("import_config", str(path), "--apply", stdout=shown)
    assert shown.getvalue().endswith("Nothing differs.\n")
    path.write_text("format: 1\npolicies: [{cpu: 1}]")
    with pytest.raises(CommandError, match="policies 1: name") as caught:
        call_command("import_config", str(path), "--apply")
    assert caught.value.returncode == 1
    path.write_bytes(b"\xff")
    for name in (path, tmp_path / "missing.yaml"):
        with pytest.raises(CommandError):
            call_command("import_config", str(name), "--apply")


def test_superadmins_import_by_page_and_api(world: None, client: Client) -> None:
    client.force_login(User.objects.create_superuser("root@example.org", "a long password"))
    exported = client.get("/admin/configuration/export/").content.decode()
    text = changed(exported, "policies", "guests", cpu=2)
    page = client.post("/admin/configuration/", {"text": text, "preview": "1"})
    assert (page.status_code, "1 row would change." in page.content.decode()) == (200, True)
    digest = page.context["digest"]
    assert client.post("/admin/configuration/", {"text": text, "import": "1", "digest": "x"}).status_code == 422
    assert client.post("/admin/configuration/", {"text": text, "import": "1", "digest": digest}).status_code == 302
    assert ResourcePolicy.objects.get(name="guests").cpu == 2
    assert client.post("/admin/configuration/", {"text": "format: 2", "preview": "1"}).status_code == 422
    for content in (b"", b"\xff", b"format: 1\n#" + b"x" * 2**20):
        file = SimpleUploadedFile("gpuplatform.yaml", content)
        page = client.post("/admin/configuration/", {"file": file, "preview": "1"})
        assert (page.status_code, list(page.context["form"].errors)) == (422, ["file"])
    file = SimpleUploadedFile("gpuplatform.yaml", text.replace("guests", "visitors").encode())
    page = client.post("/admin/configuration/", {"file": file, "preview": "1"})
    assert [change.key for change in page.context["changes"]] == ["visitors"]
    assert "visitors" in page.context["form"].cleaned_data["text"]
    body = {"yaml": changed(text, "policies", "guests", cpu=3)}
    url, kind = "/api/v1/admin/configuration/", "application/json"
    answer = client.post(url, body, content_type=kind).json()
    assert (answer["is_applied"], answer["rows"][0]["changes"]["cpu"]) == (False, [2, 3])
    assert client.post(url, {**body, "apply": True}, content_type=kind).json()["is_applied"]
    assert ResourcePolicy.objects.get(name="guests").cpu == 3
    assert client.post(url, {"yaml": "format: 2"}, content_type=kind).status_code == 400
    assert "guests" in client.get(url).json()["yaml"]


def test_nobody_but_superadmins_reaches_the_configuration(world: None, client: Client) -> None:
    url, kind = "/api/v1/admin/configuration/", "application/json"
    body = {"yaml": "format: 1\npolicies: [{name: mine}]", "apply": True}
    for user in (None, make_user(), make_user(is_staff=True)):
        client.logout()
        if user is not None:
            client.force_login(user)
        refused = 401 if user is None else 403
        assert client.get(url).status_code == refused
        assert client.post(url, body, content_type=kind).status_code == refused
        for page in ("/admin/configuration/", "/admin/configuration/export/"):
            response = client.get(page)
            assert response.status_code in (302, 403), page
            assert b"students" not in response.content
        assert client.post("/admin/configuration/", {"text": body["yaml"], "import": "1"}).status_code in (302, 403)
        assert not ResourcePolicy.objects.filter(name="mine").exists()
