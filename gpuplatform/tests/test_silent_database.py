"""PostgreSQL away without a word: frozen, or behind a network that drops packets; its connections stay open."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
import requests
from django.db import OperationalError, connection
from psycopg_pool import ConnectionPool

from gpuplatform.serving.admission.control import SLOTS
from hostworker.agent import worker as worker_module
from hostworker.agent.worker import HostWorker
from hostworker.tests.fault_injection import FaultInjectingRuntime
from operations.database import silence as database_silence
from operations.database.silence import server_at
from resources.hosts import services as hosts
from resources.models import Host, HostStatus
from sessions import sweeps
from sessions.lifecycle import Status
from sessions.models import Session
from tests.factories import make_host, make_user, session_in
from tests.live import login_cookie, serving
from tests.relay import Relay, relaying
from tests.silent_database import connecting_at, database_relay, direct_connection, tcp_server, url_at
from tests.wait import SECONDS, until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.loopback]


@pytest.fixture
def relay() -> Iterator[Relay]:
    with database_relay() as running:
        yield running


def test_pages_and_api_say_so_while_the_database_is_silent(relay: Relay, tmp_path: Path) -> None:
    paths = ["/sessions/", "/api/v1/me/"] * SLOTS
    settings = "tests.settings_without_debug"
    with serving(tmp_path / "web.log", DATABASE_URL=url_at(relay.port), DJANGO_SETTINGS_MODULE=settings) as web:
        cookie = login_cookie(make_user(), web.url)

        def ask(path: str) -> requests.Response:
            return requests.get(web.url + path, cookies={cookie["name"]: cookie["value"]}, timeout=SECONDS)

        with ThreadPoolExecutor(len(paths)) as clients:
            assert {response.status_code for response in clients.map(ask, paths[:2])} == {200}
            relay.freeze()
            waiting = [clients.submit(ask, path) for path in paths]
            until(lambda: ask("/healthz").json() == {"database": "unreachable", "redis": "ok"})
            assert {request.result().status_code for request in waiting} == {503}
            page, api = clients.map(ask, paths[:2])
            assert (page.status_code, api.status_code) == (503, 503)
            assert "Your sessions keep running" in page.text
            assert api.json()["detail"] == "The database does not answer at present."
            relay.thaw()
            until(lambda: {response.status_code for response in clients.map(ask, paths[:4])} == {200})


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
    monkeypatch.setattr(database_silence, "ANSWER_SECONDS", SECONDS)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(0.5), 1")
        assert cursor.fetchone() == ("", 1)


def test_query_to_a_silent_server_ends_and_frees_its_thread(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    server = database_silence.server_at("127.0.0.1", relay.port)
    with connecting_at(relay.port):
        with connection.cursor() as cursor, monkeypatch.context() as patched:
            patched.setattr(database_silence, "SILENCE_SECONDS", 0.1)
            patched.setattr(database_silence, "ANSWER_SECONDS", 0.1)
            relay.freeze()
            with pytest.raises(OperationalError, match="does not answer"):
                cursor.execute("SELECT 1")
        assert isinstance(connection.connection, psycopg.Connection)
        assert connection.connection.closed
        connection.close()
        assert server.is_silent
        with monkeypatch.context() as patched:
            patched.setattr(ConnectionPool, "getconn", lambda _: pytest.fail("waits for a connection"))
            with pytest.raises(OperationalError, match="does not answer"):
                connection.cursor()
        relay.thaw()
        until(lambda: server.is_responsive(SECONDS))
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")


@pytest.mark.long
def test_locks_of_a_machine_that_vanished_end(tmp_path: Path) -> None:
    with tcp_server(tmp_path) as server, relaying(server) as relay:
        options = {
            name: value for name, value in connection.settings_dict["OPTIONS"].items() if name not in ("pool", "host")
        }

        def connect(port: int) -> psycopg.Connection[tuple[object, ...]]:
            return psycopg.connect(host="127.0.0.1", port=port, user="postgres", autocommit=True, **options)

        until(lambda: server_at("127.0.0.1", server).is_responsive(SECONDS))
        idle, busy, other = connect(relay.port), connect(relay.port), connect(server)
        idle.execute("SELECT pg_advisory_lock(1)")
        busy.execute("SELECT pg_advisory_lock(2)")
        busy.pgconn.send_query(b"SELECT pg_sleep(3600)")
        held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
        assert other.execute(held).fetchone() == (2,)
        relay.drop()
        until(lambda: other.execute(held).fetchone() == (0,))
        for session in (idle, busy, other):
            session.close()


def test_a_connection_begins_with_the_server_that_took_the_last() -> None:
    primary = database_silence.Primary()
    named = {"host": "db1,db2,db3", "port": "5432,5433,5434", "user": "me"}
    assert primary.first(named) == named
    primary.note("db3", 5434)
    assert primary.first(named) == named | {"host": "db3,db1,db2", "port": "5434,5432,5433"}
    assert primary.first({"host": "db3", "port": "5434"}) == {"host": "db3", "port": "5434"}
    primary.note("db2", 5432)
    assert primary.first({"host": "db1,db2"}) == {"host": "db2,db1", "port": "5432,5432"}
    primary.note("elsewhere", 5432)
    assert primary.first(named) == named
