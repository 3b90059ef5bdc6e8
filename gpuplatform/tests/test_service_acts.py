"""Acts on services: which of them pages and API may carry out, and that all are recorded; PostgreSQL under systemd."""

import json

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client

from accounts.models import AuditEntry, User
from operations.services import systemd
from operations.services.base import ServiceAction, ServiceState, ServiceStatus
from resources.models import Installation


class RestartedDatabase:
    """A manager of PostgreSQL and a second service, whose acts end this process's connection."""

    title = "a test"

    def __init__(self) -> None:
        self.acts: list[tuple[str, str]] = []
        self.backend: int | None = None

    def states(self) -> list[ServiceState]:
        return [ServiceState(name=name, status=ServiceStatus.RUNNING) for name in ("postgresql", "web")]

    def act(self, action: ServiceAction, name: str) -> None:
        self.acts.append((action.value, name))
        with psycopg.connect(**connection.get_connection_params()) as other:
            other.execute("SELECT pg_terminate_backend(%s, 10000)", [self.backend])


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> RestartedDatabase:
    fake = RestartedDatabase()
    for module in ("operations.services.api", "operations.management.commands.services"):
        monkeypatch.setattr(f"{module}.local_manager", lambda: fake)
    return fake


@pytest.mark.django_db(transaction=True)
def test_acts_after_a_restart_of_the_database_are_recorded(manager: RestartedDatabase) -> None:
    Installation.current_key()
    connection.ensure_connection()
    manager.backend = connection.connection.info.backend_pid
    call_command("services", "restart")
    assert manager.acts == [("restart", "postgresql"), ("restart", "web")]
    assert AuditEntry.objects.filter(action="restart_service").count() == 2


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["web", "postgresql"])
def test_the_api_stops_nothing_that_it_needs(name: str, manager: RestartedDatabase, client: Client) -> None:
    client.force_login(User.objects.create_superuser("root@example.org", "a long password"))
    body = json.dumps({"action": "stop", "service": name})
    response = client.post("/api/v1/admin/services/", body, content_type="application/json")
    assert response.status_code == 400
    assert "manage.py services" in json.dumps(response.json())
    assert not manager.acts


@pytest.mark.parametrize(("main", "other", "shown"), [("active", "failed", "failed"), ("active", "active", "running")])
def test_postgresql_is_what_its_clusters_are(
    main: str, other: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    units = {
        "postgresql": "active",
        "postgresql@14-old": other,
        "postgresql@15-main": main,
        "gpuplatform-web": "active",
    }
    text = "\n\n".join(
        f"Id={name}.service\nLoadState=loaded\nUnitFileState=enabled\nActiveState={state}\nMainPID={number}"
        for number, (name, state) in enumerate(units.items())
    )
    monkeypatch.setattr(systemd, "_run", lambda *command: text)
    states = {state.name: state for state in systemd.SystemdManager().states()}
    assert {name: state.status.value for name, state in states.items()} == {"postgresql": shown, "web": "running"}
    assert states["postgresql"].pid
