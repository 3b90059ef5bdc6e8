"""TLS to everything: a host joins through nginx, and works while Redis fails over, all certificates verified."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import docker
import psycopg
import pytest
import redis
from docker.models.containers import Container
from kombu import Connection

from messaging.redis_url import broker_options, broker_url
from operations.machine.system_packages import program
from tests.containers import ENGINE_URL
from tests.fleet import ADMIN, LAUNCH, START_SECONDS, Fleet, SteadyClient, in_memory_fleet
from tests.joined_hosts import NOT_OF_A_HOST, join
from tests.ports import free_port
from tests.systemd_machine import SERVERS, ensure_image
from tests.test_nginx_reverse_proxy import configuration, write_certificate
from tests.wait import SECONDS, until

pytestmark = [pytest.mark.docker, pytest.mark.long(minutes=4)]

PASSWORD: Final = "only-for-tests"
# Neither server listens without TLS.
POSTGRES: Final = """
install -m 600 -o postgres /tls/gpu.pem /tls/gpu.key /tls/password /tmp
echo hostssl all all all scram-sha-256 >/tmp/hba.conf
as_server() { runuser -u postgres -- "$@"; }
programs=$(echo /usr/lib/postgresql/*/bin)
as_server $programs/initdb -D /tmp/data --encoding=UTF8 --auth=scram-sha-256 --pwfile=/tmp/password
exec runuser -u postgres -- $programs/postgres -D /tmp/data -c port=$0 -c listen_addresses=localhost -c fsync=off \
    -c ssl=on -c ssl_cert_file=/tmp/gpu.pem -c ssl_key_file=/tmp/gpu.key -c hba_file=/tmp/hba.conf
"""
REDIS: Final = """
bind 127.0.0.1 -::1
port 0
tls-port {port}
tls-cert-file /tls/gpu.pem
tls-key-file /tls/gpu.key
tls-ca-cert-file /tls/gpu.pem
tls-auth-clients no
tls-replication yes
"""
SERVER: Final = f"""{REDIS}
save ""
requirepass {PASSWORD}
masterauth {PASSWORD}
replica-announce-ip localhost
"""
SENTINEL: Final = f"""{REDIS}
sentinel resolve-hostnames yes
sentinel announce-hostnames yes
sentinel announce-ip localhost
sentinel monitor lab localhost {{primary}} 2
sentinel auth-pass lab {PASSWORD}
sentinel down-after-milliseconds lab 2000
sentinel failover-timeout lab 10000
"""


class TlsServers:
    """PostgreSQL, a primary of Redis, its replica and three Sentinels, each in a container on this machine's network.

    `folder` gets the certificate, gpu.pem, which is its own authority.
    """

    def __init__(self, folder: Path, running: ExitStack) -> None:
        self.authority = folder / "gpu.pem"
        self._folder = folder
        self._running = running
        self._ports = [free_port() for _ in range(6)]
        write_certificate(folder, "localhost")
        (folder / "password").write_text(PASSWORD)
        ensure_image(SERVERS)
        self._engine = running.enter_context(closing(docker.DockerClient(ENGINE_URL)))
        database, primary, replica, *sentinels = self._ports
        self._start("sh", "-euc", POSTGRES, str(database))
        self.primary = self._redis(primary, SERVER)
        self._redis(replica, f"{SERVER}replicaof localhost {primary}\n")
        for port in sentinels:
            self._redis(port, SENTINEL.format(port="{port}", primary=primary), "--sentinel")
        self.database_url = (
            f"postgresql://postgres:{PASSWORD}@localhost:{database}/postgres"
            f"?sslmode=verify-full&sslrootcert={self.authority}"
        )
        hosts = ",".join(f"localhost:{port}" for port in sentinels)
        self.redis_url = f"rediss+sentinel://:{PASSWORD}@{hosts}/lab/0?ssl_ca_certs={self.authority}"
        known = {"slaves": 1, "sentinels": 3}.items()
        until(lambda: all(self._known(port).items() >= known for port in sentinels), seconds=START_SECONDS)
        until(self._has_database, seconds=START_SECONDS)

    def wait_for_failover(self) -> None:
        """Return once every Sentinel names the replica as the primary."""
        _, _, replica, *sentinels = self._ports
        address = f"localhost:{replica}"
        until(lambda: all(self._known(port).get("address") == address for port in sentinels), seconds=START_SECONDS)

    def _redis(self, port: int, config: str, *options: str) -> Container:
        (self._folder / f"{port}.conf").write_text(config.format(port=port))
        # A Sentinel writes to its file.
        return self._start(
            "sh", "-euc", 'cp /tls/$0.conf /tmp; exec redis-server /tmp/$0.conf "$@"', str(port), *options
        )

    def _start(self, *command: str) -> Container:
        container = self._engine.containers.run(
            SERVERS, list(command), detach=True, network_mode="host", volumes={str(self._folder): {"bind": "/tls"}}
        )
        self._running.callback(container.remove, force=True, v=True)
        return container

    def _known(self, sentinel: int) -> dict[str, object]:
        try:
            with redis.Redis("localhost", sentinel, ssl=True, ssl_ca_certs=str(self.authority)) as client:
                return dict(client.info("sentinel").get("master0", {}))
        except redis.RedisError:
            return {}

    def _has_database(self) -> bool:
        try:
            psycopg.connect(self.database_url).close()
        except psycopg.OperationalError:
            return False
        return True


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[TlsServers]:
    with ExitStack() as running:
        yield TlsServers(tmp_path, running)


@pytest.fixture
def fleet(servers: TlsServers, tmp_path: Path) -> Iterator[Fleet]:
    with in_memory_fleet(tmp_path, DATABASE_URL=servers.database_url, REDIS_URL=servers.redis_url) as running:
        yield running


@pytest.fixture
def site(fleet: Fleet, tmp_path: Path) -> Iterator[str]:
    """The address of the web server behind nginx with the shipped configuration."""
    nginx, port, file = program("nginx"), free_port(), tmp_path / "nginx.conf"
    assert nginx, "`make test` installs nginx"
    text = configuration(tmp_path, port, free_port())
    file.write_text(text.replace("127.0.0.1:8000", fleet.environment["COMPUTE_HTTP_ADDRESS"]))
    process = subprocess.Popen([nginx, "-c", str(file), "-e", str(tmp_path / "error.log")])
    yield f"https://localhost:{port}"
    process.terminate()
    process.wait(SECONDS)


def test_a_joined_host_outlives_a_failover_over_tls(
    servers: TlsServers, fleet: Fleet, site: str, tmp_path: Path
) -> None:
    invited = fleet.manage("add_host", "gpu7", "--group", "lab", "--create-group")
    (token,) = re.findall(r"--join \S+ (\S+)", invited)
    given = join(site, token, tmp_path / "host.env", SSL_CERT_FILE=str(servers.authority))
    assert "sslmode=verify-full" in given["DATABASE_URL"]
    fleet.add("gpu7", "hostworker", None, **NOT_OF_A_HOST, **given, COMPUTE_VAR_DIR=str(tmp_path / "gpu7"))
    fleet.start("gpu7")
    fleet.wait_for_hosts(2)
    client = SteadyClient(fleet.url, ADMIN, fleet.password(ADMIN))
    asked = {**LAUNCH, "resource_group": "lab"}
    del asked["cpu"]
    sessions = [client.launch(**asked)]
    servers.primary.kill()
    servers.wait_for_failover()
    sessions.append(client.launch(**asked))
    for session in sessions:
        assert client.get(f"sessions/{session}/")["status"] == "RUNNING"
        client.post(f"sessions/{session}/terminate/")
    until(
        lambda: {client.get(f"sessions/{session}/")["status"] for session in sessions} == {"TERMINATED"},
        seconds=START_SECONDS,
    )
    assert fleet.ended() == []
    with psycopg.connect(servers.database_url) as connection:
        rows = connection.execute("SELECT attempt, h.name FROM compute_session JOIN resources_host h ON h.id = host_id")
        assert rows.fetchall() == [(1, "gpu7")] * 2
    assert_celery_verifies(servers.redis_url)


def assert_celery_verifies(url: str) -> None:
    """Check that Celery connects with the authority, and not without."""
    with Connection(broker_url(url), transport_options=broker_options(url)) as broker:
        broker.connect()
    strange = url.partition("?")[0]
    with (
        Connection(broker_url(strange), transport_options=broker_options(strange)) as broker,
        pytest.raises(redis.RedisError),
    ):
        broker.connect()
