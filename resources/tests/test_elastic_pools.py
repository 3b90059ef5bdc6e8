"""Elastic pools by API and administration, and what the program of a provider may do to the platform."""

import json
import os
import stat
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from accounts.models import AuditEntry
from gpuplatform.tests.admin_pages import text_of, url
from resources.elastic import command, host_types
from resources.elastic.command import CommandProvider
from resources.elastic.providers import HostRequest, HostShape, ProvidedState, ProviderError
from resources.elastic.slurm import SlurmProvider
from resources.hosts.elastic_pools import events_of
from resources.models import ElasticHost, ElasticPool, ElasticState
from tests.api import client_of
from tests.factories import make_group, make_host, make_user, run_session

API: Final = "/api/v1/admin/elastic-pools/"
NAMES: Final = ("create", "list", "delete")
TYPE: Final[dict[str, Any]] = {"name": "a100", "cpus": 12, "memory": "80g", "gpu_count": 1, "cost_per_hour": "3.5"}
Program = Callable[[str], CommandProvider]


@pytest.fixture(autouse=True)
def _folder(settings: Settings, tmp_path: Path) -> None:
    settings.COMPUTE_PROVIDER_COMMANDS = str(tmp_path)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Return the provider all of whose programs are this shell script."""

    def write(script: str) -> CommandProvider:
        path = tmp_path / "machines"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return CommandProvider({name: ["machines", name] for name in NAMES} | {"timeout_seconds": 1}, "gp-")

    return write


def body(**more: Any) -> dict[str, Any]:
    configuration = {name: ["machines", name] for name in NAMES}
    return {
        "resource_group": "cloud",
        "provider": "command",
        "configuration": configuration,
        "host_types": [TYPE],
    } | more


@pytest.mark.django_db
def test_a_pool_is_made_changed_and_recorded() -> None:
    make_group(name="cloud")
    client = client_of(make_user(is_superuser=True))
    made = client.post(API, body(cost_per_hour="14", cool_down="5m"), format="json")
    assert made.status_code == 201, made.json()
    assert made.json()["host_types"][0]["memory"] == 80 * 2**30
    pool = ElasticPool.objects.get()
    assert client.patch(f"{API}{pool.pk}/", {"max_hosts": 3}, format="json").json()["max_hosts"] == 3
    assert AuditEntry.objects.filter(object_type__icontains="pool").count() == 2
    ElasticHost.objects.create(pool=pool, name="gp-1", type_name="a100", cost_per_hour=1)
    hosts = client.get("/api/v1/admin/elastic-hosts/?resource_group=cloud").json()["results"]
    assert [(host["name"], host["state"]) for host in hosts] == [("gp-1", "REQUESTED")]
    events = client.get(f"{API}{pool.pk}/events/").json()
    assert [(event["event"], event["host"], event["reason"]) for event in events] == [("ASKED_FOR", "gp-1", "")]
    assert client.delete(f"{API}{pool.pk}/").status_code == 409
    make_group(name="elsewhere")
    moved = client.patch(f"{API}{pool.pk}/", {"resource_group": "elsewhere"}, format="json")
    assert [*moved.json()["errors"]] == ["provider"], "its hosts would be left where they are"
    ElasticHost.objects.all().delete()
    assert client.delete(f"{API}{pool.pk}/").status_code == 204


@pytest.mark.django_db
def test_the_life_of_a_pool_is_told_latest_first() -> None:
    pool = made_pool()
    at, hour = timezone.now() - timedelta(days=1), timedelta(hours=1)
    fields = {"pool": pool, "type_name": "a100", "cost_per_hour": 1}
    known = {"joined_at": at + hour, "ended_at": at + 3 * hour, "state": ElasticState.ENDED, "reason": "Idle"}
    ElasticHost.objects.create(name="gp-1", created_at=at, **known, **fields)
    failed = {"ended_at": at + 4 * hour, "state": ElasticState.FAILED, "reason": "no quota"}
    ElasticHost.objects.create(name="gp-2", created_at=at + 2 * hour, **failed, **fields)
    events = [(event.event.value, event.host.name, event.reason) for event in events_of(pool)]
    assert events == [
        ("GIVEN_UP", "gp-2", "no quota"),
        ("GIVEN_BACK", "gp-1", "Idle"),
        ("ASKED_FOR", "gp-2", ""),
        ("CAME", "gp-1", ""),
        ("ASKED_FOR", "gp-1", ""),
    ]


@pytest.mark.django_db
def test_the_administration_shows_hosts_and_errors_in_words(client: Client) -> None:
    pool = made_pool()
    client.force_login(make_user(is_superuser=True, is_staff=True))
    host = make_host(name="gp-2", group=pool.group)
    fields = {"pool": pool, "type_name": "a100", "cost_per_hour": 1}
    ElasticHost.objects.create(name="gp-1", state=ElasticState.FAILED, ended_at=timezone.now(), **fields)
    ElasticHost.objects.create(name="gp-2", state=ElasticState.DRAINING, reason="Idle", host=host, **fields)
    run_session(host=host)
    address = url(ElasticPool, "change", pool.pk)
    page = text_of(client.get(address))
    assert "draining: Idle" in page
    assert "1 session</a>" in page
    assert "given up" in page
    assert "{&quot;name&quot;: &quot;a100&quot;, &quot;cpus&quot;: 12, &quot;memory&quot;: &quot;80g&quot;," in page
    wrong = json.dumps([TYPE, TYPE | {"name": "b", "cpus": 0}])
    posted = {"group": pool.group_id, "provider": "command", "configuration": json.dumps(pool.configuration)}
    page = text_of(client.post(address, posted | {"host_types": wrong}))
    assert "Type 2, cpus: Ensure this value is greater than or equal to 1." in page
    assert "&quot;cpus&quot;: 0" in page, "what was typed stays"
    page = text_of(client.post(address, posted | {"host_types": "[" * 50_000}))
    assert "Enter a valid JSON." in page


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"provider": "wishes"}, "provider"),
        ({"configuration": {}}, "configuration"),
        ({"configuration": {name: ["../../bin/sh"] for name in NAMES}}, "configuration"),
        ({"configuration": {name: ["/bin/sh"] for name in NAMES}}, "configuration"),
        ({"configuration": {name: [".."] for name in NAMES}}, "configuration"),
        ({"configuration": {name: [] for name in NAMES}}, "configuration"),
        ({"configuration": {name: ["machines", "a\0b"] for name in NAMES}}, "configuration"),
        ({"host_types": []}, "host_types"),
        ({"host_types": [TYPE, TYPE]}, "host_types"),
        ({"host_types": [TYPE | {"cpus": 0}]}, "host_types"),
        ({"host_types": [TYPE | {"cost_per_hour": "NaN"}]}, "host_types"),
        ({"host_types": [TYPE | {"name": "a b"}]}, "host_types"),
        ({"host_types": [TYPE | {"colour": "red"}]}, "host_types"),
        ({"min_hosts": 2}, "min_hosts"),
        ({"hosts_per_hour": 0}, "hosts_per_hour"),
        ({"cool_down": "1s"}, "cool_down"),
        ({"failures": 3}, "failures"),
    ],
)
def test_what_cannot_work_is_refused_at_its_field(change: dict[str, Any], field: str) -> None:
    make_group(name="cloud")
    response = client_of(make_user(is_superuser=True)).post(API, body(**change), format="json")
    assert response.status_code == 400
    assert {name.split(".")[0] for name in response.json()["errors"]} == {field}


@pytest.mark.parametrize("unwritable", ["a\0b", "\ud800", ["a"]])
def test_a_word_that_is_none_is_refused_in_words(unwritable: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        CommandProvider({name: ["machines", name] for name in NAMES} | {"create": ["machines", unwritable]}, "gp-")
    (text,) = refused.value.messages
    assert text.startswith("create.1: ")
    assert text.endswith(".")


def test_of_jobs_that_are_over_nothing_is_left(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "on").write_text(
        "#!/bin/sh\nfor state in CANCELLED FAILED RUNNING; do echo 7,$state,N/A,gp-1,None; done\n"
    )
    (tmp_path / "on").chmod(0o755)
    settings.COMPUTE_SLURM_PREFIX = str(tmp_path / "on")
    hosts = SlurmProvider({"partition": "gpu", "time_limit_minutes": 60}, "gp-").list()
    assert [(host.state, host.is_left) for host in hosts] == [
        (ProvidedState.FAILED, False),
        (ProvidedState.FAILED, False),
        (ProvidedState.RUNNING, True),
    ]


def test_what_concerns_no_field_names_none(settings: Settings) -> None:
    settings.COMPUTE_PROVIDER_COMMANDS = ""
    with pytest.raises(ValidationError) as refused:
        CommandProvider({name: ["machines"] for name in NAMES}, "gp-")
    assert refused.value.messages == ["COMPUTE_PROVIDER_COMMANDS names no folder of programs on this platform."]


@pytest.mark.django_db
def test_without_a_folder_there_are_no_programs(settings: Settings) -> None:
    settings.COMPUTE_PROVIDER_COMMANDS = ""
    make_group(name="cloud")
    response = client_of(make_user(is_superuser=True)).post(API, body(), format="json")
    assert "COMPUTE_PROVIDER_COMMANDS" in str(response.json()["errors"]["configuration"])


@pytest.mark.parametrize("rows", [None, {}, [None], ["a"], [{"name": "a"}], [TYPE] * 17])
def test_rows_that_are_no_types_are_refused(rows: Any) -> None:
    with pytest.raises(ValidationError):
        host_types.checked(rows)


def test_a_program_reads_and_writes_json(program: Program) -> None:
    assert program("""cat >&2; echo '{"identifier": "vm-1"}'""").create(asked()) == "vm-1"
    listed = """echo '{"hosts": [{"identifier": "vm-1", "host_name": "gp-1", "state": "RUNNING"},
        {"identifier": "vm-2", "host_name": "other-1", "state": "RUNNING"}]}'"""
    (host,) = program(listed).list()
    assert (host.identifier, host.state) == ("vm-1", ProvidedState.RUNNING)
    program("true").delete("vm-1")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo first >&2; echo no quota >&2; exit 3", "no quota"),
        ("exit 3", "status 3"),
        ("echo nonsense", "no JSON"),
        ("echo []", "no JSON object"),
        ("echo '{}'", "not as expected"),
        ("""echo '{"hosts": [{"identifier": "a", "state": "LOST"}]}'""", "not as expected"),
        ("exec sleep 60", "did not end within 1 seconds"),
        ("sleep 60 & sleep 60", "did not end within 1 seconds"),
        ("exec yes", "wrote more than 1 MiB"),
    ],
)
def test_a_program_that_fails_is_put_into_words(program: Program, script: str, words: str) -> None:
    with pytest.raises(ProviderError, match=words):
        program(script).list()


def test_a_program_that_is_missing_is_named() -> None:
    provider = CommandProvider({name: ["none"] for name in NAMES}, "gp-")
    with pytest.raises(ProviderError, match="none cannot be run"):
        provider.delete("vm-1")


def test_a_program_sees_no_secrets_of_the_platform(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "known")
    with pytest.raises(ProviderError) as raised:
        program("""env | tr '\\n' ' ' >&2; exit 1""").list()
    assert "known" not in str(raised.value)
    assert os.environ["SECRET_KEY"] == "known"
    assert set(command.ENVIRONMENT) == {"PATH", "LANG"}


def made_pool() -> ElasticPool:
    programs = {name: ["machines", name] for name in NAMES}
    pool = ElasticPool(group=make_group(), provider="command", configuration=programs, host_types=[TYPE])
    pool.full_clean()
    pool.save()
    return pool


def asked() -> HostRequest:
    shape = HostShape(12, 80, 1, "a100")
    return HostRequest(name="gp-1", group="cloud", shape=shape, join_token="token", join_address="https://lab")
