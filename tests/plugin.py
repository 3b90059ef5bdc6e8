"""pytest plugin: gives every test process its own embedded PostgreSQL and Redis, below var.

Loaded with `-p`, because the settings are read before any conftest.py. Under pytest-xdist each worker is such a
process; the controller runs no test and starts nothing.
"""

import fcntl
import functools
import gc
import itertools
import os
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from django.test import override_settings
from xdist.scheduler import LoadFileScheduling

from operations import embedded
from operations.embedded_servers import postgres
from operations.embedded_servers import redis_and_postgres as services

COMMANDS: Final = """
    array_commands clients command_line commands_on_sessions deployment_commands function_arrays import_commands
    remote_functions resource_commands scaling_commands slurm_day spec_commands ssh_files template_commands
"""
ON_ONE_PLATFORM: Final = {
    "client/gpuplatform_client/tests/test_python_page.py",
    "tests/test_guide.py",
    "tests/test_apps_guide.py",
    "tests/test_class.py",
    "tests/test_secrets.py",
    "tests/test_parking_story.py",
    "tests/test_resize_story.py",
    "tests/test_student_day.py",
    "tests/test_webhook_story.py",
    "tests/test_import_to_notebook.py",
    "client/gpuplatform_client/tests/test_ssh_commands.py",
}  # those with conftest.py's `platform`
ON_ONE_SERVER: Final = {
    *(f"client/gpuplatform_client/tests/test_{name}.py" for name in COMMANDS.split()),
    "folders/tests/test_downloads.py",
    "folders/tests/test_uploads.py",
    "gpuplatform/tests/test_request_bodies.py",
    "tests/test_limits_everywhere.py",
}  # those that share conftest.py's `server` without a browser, which else each of them would start
RANKS: Final = "builds images", "browser", "needs images", "docker", "other"  # in this order files are begun
BUILDS_IMAGES: Final = "resources/tests/test_image_builder.py"
BROWSER_SCOPES: Final = 2  # processes with files of a browser, of which each has a browser and a web process
WAITING_PART: Final = 0.7  # of the files behind those of browsers and images, until the last that waits for containers
NEEDS_IMAGES: Final = ON_ONE_PLATFORM | {"tests/test_conversion_story.py"}
ROOT: Final = Path(__file__).resolve().parent.parent
VAR: Final = ROOT / "var"
SERVICES: Final = pytest.StashKey[Path]()  # the folder of this process's PostgreSQL and Redis
LOOPBACK: Final = "127.0.0.0/8", "::1", "localhost"
ENVIRONMENT: Final = {
    "DEBUG": "true",  # static files by their plain names; pytest-django itself then turns DEBUG off
    "SECRET_KEY": "only-for-tests-" + "0" * 50,
    "COMPUTE_VAR_DIR": str(VAR / "test"),  # of the controller, which writes nothing; else see _start_services
    "DATABASE_URL": "",
    "REDIS_URL": "",
    "COMPUTE_HTTPS": "false",
    "COMPUTE_HOST_NAME": "test-host",
    "COMPUTE_SHARED_ENGINE": "true",  # all test processes use one engine, and a developer's platform may run
    "COMPUTE_RUNTIME": "hostworker.runtime.memory.runtime.MemoryRuntime",
    "COMPUTE_SIMULATED_GPUS": "1x8GiB",
    "COMPUTE_SANDBOX_POOL": "2",  # more would take time from the tests beside
    "COMPUTE_LOG_LEVEL": "INFO",
}


def _own_folder() -> tuple[Path, int]:
    """Return the first of var/test, var/test-2, ... that no other test process has, and the open file that locks it."""
    for number in itertools.count(1):
        folder = VAR / ("test" if number == 1 else f"test-{number}")
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return folder, lock
    raise AssertionError("unreachable")


def _own_networks() -> str:
    """Return a range of networks of clusters that no other process of this machine has, of 240.0.0.0/4."""
    return str(IPv4Network((0xF000_0000 + (os.getpid() % (1 << 16) << 12), 20)))


def write_without_care(var_dir: Path) -> None:
    """Let PostgreSQL wait for no disk, and vacuum nothing.

    Nobody needs these data after a crash of the machine. A vacuum may deadlock with tests that drop what they made.
    """
    with psycopg.connect(embedded.database_url(var_dir), autocommit=True) as connection:
        for setting in ("fsync", "synchronous_commit", "full_page_writes", "autovacuum"):
            connection.execute(f"ALTER SYSTEM SET {setting} = off")
        connection.execute("SELECT pg_reload_conf()")


def _start_services(config: pytest.Config) -> None:
    """Start PostgreSQL and Redis in a folder of this process, have the settings name it, and stop both at the end."""
    var_dir, lock = _own_folder()
    config.add_cleanup(functools.partial(os.close, lock))
    os.environ["COMPUTE_VAR_DIR"] = str(var_dir)
    os.environ["COMPUTE_CLUSTER_RANGE"] = _own_networks()
    (var_dir / "static").mkdir(parents=True, exist_ok=True)  # WhiteNoise warns without it
    config.add_cleanup(functools.partial(_stop_services, var_dir))
    config.stash[SERVICES] = var_dir
    postgres.start(var_dir)
    services.start_redis(var_dir)
    write_without_care(var_dir)


def _stop_services(var_dir: Path) -> None:
    services.stop_redis(var_dir)
    postgres.stop(var_dir)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Stop the services while the controller of pytest-xdist waits: it kills a worker that lingers afterwards."""
    if SERVICES in session.config.stash:
        _stop_services(session.config.stash[SERVICES])


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Iterator[None]:
    """Set the environment and start the services before pytest-django and the conftest.py files read the settings."""
    gc.disable()  # while thousands of tests are collected, which all stay: two thirds of the time
    os.environ.update(ENVIRONMENT)
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    if is_worker or not getattr(early_config.known_args_namespace, "numprocesses", None):
        _start_services(early_config)
    yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test the network that its markers name, and begin with the files that take longest, mostly waiting.

    Files with a browser follow each other, since they share it; those that need images come when these are built.
    What computes comes among what waits for containers, so that processors are busy, and last. Unix sockets, as of
    PostgreSQL and Redis, are open.
    """
    ranks: dict[Path, int] = {}
    minutes: Counter[Path] = Counter()
    for item in items:
        if marker := item.get_closest_marker("long"):
            minutes[item.path] += minutes_of(marker)
        ranks[item.path] = min(_rank(item), ranks.get(item.path, len(RANKS)))
        if item.get_closest_marker("docker") or item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.enable_socket)
        elif item.get_closest_marker("loopback"):
            item.add_marker(pytest.mark.allow_hosts(list(LOOPBACK)))
    positions = positions_of(ranks)
    items.sort(key=lambda item: (-minutes[item.path], positions[item.path]))


def minutes_of(marker: pytest.Mark) -> int:
    """Return for how long a campaign is said to take, by its name or place; 0 where nothing is said."""
    return sum((*marker.args, *marker.kwargs.values()))


def pytest_collection_finish() -> None:
    """Collect garbage from here on, but not among what was there before."""
    gc.freeze()
    gc.enable()


def positions_of(ranks: Mapping[Path, int]) -> dict[Path, float]:
    """Return the place of each file: its rank, beyond which files of the last two are spread over each other."""
    positions: dict[Path, float] = dict(ranks)
    waiting = RANKS.index("docker")
    for rank, end in ((waiting, WAITING_PART), (RANKS.index("other"), 1.0)):
        files = [path for path, its_rank in ranks.items() if its_rank == rank]
        positions.update((path, waiting + end * number / len(files)) for number, path in enumerate(files))
    return positions


def scope_of(file: str) -> str:
    """Return the name of what one process runs as a whole, by a file of it."""
    if file in ON_ONE_PLATFORM:
        return "platform"
    if file in ON_ONE_SERVER:
        return "server"
    return f"browser {zlib.crc32(file.encode()) % BROWSER_SCOPES}" if file.endswith("_browser.py") else file


def _rank(item: pytest.Item) -> int:
    """Return the index of the test's kind in RANKS; the lowest of a file's tests is the file's."""
    file = item.nodeid.partition("::")[0]
    kinds = {
        "builds images": file == BUILDS_IMAGES,
        "browser": bool(item.get_closest_marker("browser")) and file not in NEEDS_IMAGES,
        "needs images": file in NEEDS_IMAGES,
        "docker": bool(item.get_closest_marker("docker")),
        "other": True,
    }
    return next(RANKS.index(kind) for kind, is_so in kinds.items() if is_so)


class _Scheduling(LoadFileScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Gives a worker whole files, as `--dist loadfile` does, or all of those that share a platform or a browser."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    """Have files distributed so."""
    return _Scheduling(config, log)


@pytest.fixture(autouse=True, scope="session")
def _quick_passwords() -> Iterator[None]:
    """Hash passwords fast: the real hasher takes a third of a second on purpose, for every user that a test makes."""
    with override_settings(PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"]):
        yield
