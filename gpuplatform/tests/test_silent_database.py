"""PostgreSQL away without a word: frozen, or behind a network that drops packets; its connections stay open."""

from collections.abc import Iterator

import psycopg
import pytest
from django.db import OperationalError, connection

from gpuplatform import database_silence
from hostworker import worker as worker_module
from hostworker.tests.fault_injection import FaultInjectingRuntime
from hostworker.worker import HostWorker
from resources import services as hosts
from resources.models import Host, HostStatus
from sessions import sweeps
from sessions.lifecycle import Status
from sessions.models import Session
from tests.factories import make_host, session_in
from tests.relay import Relay
from tests.silent_database import connecting_at, database_relay, direct_connection
from tests.wait import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.loopback]


@pytest.fixture
def relay() -> Iterator[Relay]:
    with database_relay() as running:
        yield running


def test_a_host_worker_beats_again_once_packets_come_through(
    relay: Relay, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module, name in ((worker_module, "RECONCILE_SECONDS"), (hosts, "HEARTBEAT_SECONDS")):
        monkeypatch.setattr(module, name, 0.05)
    monkeypatch.setattr(database_silence, "SILENCE_SECONDS", 0.1)
    host = make_host(status=HostStatus.JOINING)
    session = session_in(Status.SCHEDULED, host=host)
    with connecting_at(relay.port), direct_connection() as scheduler:
        worker = HostWorker(FaultInjectingRuntime(), host)
        worker.begin()
        try:
            until(lambda: Session.objects.get(pk=session.pk).status == Status.RUNNING)
            relay.drop()
            scheduler.execute(
                "UPDATE resources_host SET status = 'LOST', lost_at = now(), heartbeat_at = now() - interval '1 minute'"
            )
            until(lambda: "heartbeat failed" in caplog.text)
            relay.restore()
            beats = "SELECT 1 FROM resources_host WHERE status = 'READY' AND heartbeat_at > now() - interval '20 s'"
            until(lambda: scheduler.execute(beats).fetchone())
        finally:
            relay.restore()
            worker.end()
    hosts.declare_lost()
    sweeps.end_on_lost_hosts()
    assert Host.objects.get(pk=host.pk).status == HostStatus.READY
    assert Session.objects.get(pk=session.pk).status == Status.RUNNING


def test_a_slow_query_is_no_silent_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_silence, "SILENCE_SECONDS", 0.1)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(0.5), 1")
        assert cursor.fetchone() == ("", 1)


def test_a_query_to_a_silent_server_ends_with_its_connection(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_silence, "SILENCE_SECONDS", 0.1)
    with connecting_at(relay.port):
        with connection.cursor() as cursor:
            relay.freeze()
            with pytest.raises(OperationalError, match="does not answer"):
                cursor.execute("SELECT 1")
        assert isinstance(connection.connection, psycopg.Connection)
        assert connection.connection.closed
        relay.thaw()
        connection.close()
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
