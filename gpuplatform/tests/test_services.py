"""The embedded PostgreSQL and Redis, in folders of their own."""

import io
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from operations import embedded
from operations.embedded_servers import postgres
from operations.embedded_servers import redis_and_postgres as services
from operations.supervisor.supervisor import Command, Supervisor
from tests.wait import until


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder that the server's own system user may enter, unlike pytest's."""
    path = Path(tempfile.mkdtemp(prefix="gp-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.mark.parametrize("name", ["var", "a-folder-whose-name-is-too-long-for-the-path-of-a-unix-socket-" + "x" * 60])
def test_services_keep_their_data_over_a_restart(folder: Path, name: str) -> None:
    var_dir = folder / name
    with services.running(var_dir, take_over=True):
        with psycopg.connect(embedded.database_url(var_dir)) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        assert services.redis_responds(var_dir)
    assert not postgres.is_running(var_dir)
    assert not services.redis_responds(var_dir)
    with services.running(var_dir, take_over=True), psycopg.connect(embedded.database_url(var_dir)) as connection:
        assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)
        with services.running(var_dir, take_over=False):
            pass
        assert services.redis_responds(var_dir), "what ran before is left running"
    assert not postgres.is_running(var_dir)


def test_no_server_of_another_user_is_taken_for_ours(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    socket = embedded.redis_socket(folder / ("x" * 120))
    socket.parent.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: socket.parent.stat().st_uid + 1)
    monkeypatch.setattr(services, "redis_responds", lambda _var_dir: True)
    try:
        with pytest.raises(PermissionError, match="another user's"):
            services.start_redis(folder / ("x" * 120))
    finally:
        socket.parent.rmdir()


@pytest.mark.parametrize("name", ["PostgreSQL", "Redis"])
async def test_a_killed_server_is_restarted(folder: Path, name: str) -> None:
    """With real servers and a process that waits, as `make up` has them."""
    var_dir, output = folder / "var", io.StringIO()
    pid_file = var_dir / ("postgres/postmaster.pid" if name == "PostgreSQL" else "redis/redis.pid")
    is_up = postgres.is_running if name == "PostgreSQL" else services.redis_responds
    waits = Command(name="web", arguments=[sys.executable, "-c", "import signal; signal.pause()"])
    servers = services.supervised(var_dir, with_postgres=name == "PostgreSQL", with_redis=name == "Redis")
    supervisor = Supervisor([waits], folder=folder, output=output, services=servers, check_every=0.1)

    def kill_and_stop(ready: bool) -> None:
        pid = int(pid_file.read_text().splitlines()[0])
        os.kill(pid, signal.SIGKILL)
        until(lambda: f"the embedded {name} is down" in output.getvalue())
        until(lambda: is_up(var_dir))
        os.kill(os.getpid(), signal.SIGTERM)

    with services.running(var_dir, take_over=True, with_postgres=name == "PostgreSQL", with_redis=name == "Redis"):
        assert [service.is_up() for service in servers] == [True]
        assert await supervisor.run(lambda: True, kill_and_stop) is None
    assert [service.is_up() for service in servers] == [False]


def test_stopping_what_does_not_run_is_success(folder: Path) -> None:
    postgres.stop(folder / "var")
    services.stop_redis(folder / "var")


def test_only_long_paths_move_the_socket_elsewhere(tmp_path: Path) -> None:
    assert embedded.redis_socket(tmp_path) == tmp_path / "redis" / "redis.sock"
    moved = embedded.redis_socket(tmp_path / ("x" * 100))
    assert len(str(moved).encode()) <= embedded.SOCKET_PATH_LIMIT
    assert moved != embedded.redis_socket(tmp_path / ("y" * 100))
