"""What doctor says of the machine, of settings and of the services that others run."""

import inspect
import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone
from docker.errors import DockerException
from pytest_django import Settings
from redis.exceptions import RedisError
from requests.exceptions import ReadTimeout

from hostworker.runtime.container_config import NETWORK
from messaging import clients
from operations.doctor import advice, gpus, kernel, services
from operations.doctor import machine as doctor
from operations.doctor.findings import Finding, Verdict
from operations.health import redis_probe
from operations.machine import docker_engine, system_packages
from operations.machine.docker_engine import DockerEngine
from operations.machine.progress import SetupError
from resources.amounts.units import GIB
from resources.images import builds
from resources.models import BuildState
from tests.factories import make_image, make_root

OK, WARN, FAIL = Verdict
REMOTE = "tcp://10.0.0.9:2375"


class Engine:
    """An engine that says this of itself."""

    def __init__(self, **said: Any) -> None:
        self._said = said

    def info(self) -> dict[str, Any]:
        return dict(self._said)

    def networks(self, names: list[str]) -> list[dict[str, Any]]:
        assert names == [NETWORK]
        return list(self._said["networks"])

    def images(self) -> list[dict[str, Any]]:
        return list(self._said["images"])

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have the engine say this of itself."""
    return lambda **said: monkeypatch.setattr(doctor, "docker_client", lambda: Engine(**said))


def check(name: str) -> tuple[Verdict, str, str]:
    """Return verdict, text and hint of a check."""
    finding = doctor.CHECKS[name]()
    return finding.verdict, finding.text, finding.hint


def test_checks_that_ask_in_vain_hold_up_no_other(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    said = Finding(OK, "asked")
    names = ["user", *sorted(doctor.BY_DATABASE | doctor.ELSEWHERE)]
    monkeypatch.setattr(doctor, "CHECKS", dict.fromkeys(names, lambda: said))
    monkeypatch.setattr(doctor, "_database_problem", lambda: "")
    assert doctor.examine() == [(name, said) for name in names]
    settings.COMPUTE_HOST_KEY = "host-1-key"
    found = dict(doctor.examine())
    assert {name for name in names if found[name] is not said} == {"web", "scheduler", "SSH"}
    assert {found[name].verdict for name in doctor.ELSEWHERE} == {OK}
    settings.COMPUTE_HOST_KEY = ""
    monkeypatch.setattr(doctor, "_database_problem", lambda: "refused")
    found = dict(doctor.examine())
    assert {name for name in names if found[name] is not said} == doctor.BY_DATABASE
    assert {found[name].verdict for name in doctor.BY_DATABASE} == {WARN}


@pytest.mark.parametrize(
    ("error", "verdict", "text"),
    [
        (OperationalError("no such\n  table"), FAIL, "the database refuses: no such table"),
        (DockerException("x"), WARN, "unknown, since the Docker Engine does not answer"),
        (ReadTimeout("x"), WARN, "unknown, since the Docker Engine does not answer"),
        (RedisError("x"), WARN, "unknown, since Redis does not answer"),
        (SetupError("no address"), FAIL, "no address"),
        (OSError(116, "Stale file handle", "/srv"), WARN, "unknown: [Errno 116] Stale file handle: '/srv'"),
    ],
)
def test_a_check_that_fails_itself_is_a_line_too(
    monkeypatch: pytest.MonkeyPatch, error: Exception, verdict: Verdict, text: str
) -> None:
    def fails() -> Finding:
        raise error

    monkeypatch.setattr(doctor, "CHECKS", {"one": fails})
    monkeypatch.setattr(doctor, "_database_problem", lambda: "")
    ((_, finding),) = doctor.examine()
    assert (finding.verdict, finding.text) == (verdict, text)
    assert (finding.hint != "") == isinstance(error, OperationalError)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"host": "/nowhere", "pool": True}, "No such file or directory"),
        ({"nonsense": "1"}, 'invalid connection option "nonsense"'),
    ],
)
def test_the_database_is_asked_once_and_says_why_not(
    monkeypatch: pytest.MonkeyPatch, parameters: dict[str, Any], words: str
) -> None:
    monkeypatch.setattr(connection, "get_connection_params", lambda: parameters)
    problem = doctor._database_problem()
    assert words in problem
    assert "\n" not in problem


@pytest.mark.parametrize(
    ("version", "prefix", "verdict", "text"),
    [
        ((3, 10, 9, "final", 0), "/venv", FAIL, "3.10.9"),
        ((3, 11, 0, "final", 0), "/venv", OK, "3.11.0 in /venv"),
        ((3, 12, 1, "final", 0), "/usr", WARN, "3.12.1, not in a virtual environment"),
    ],
)
def test_doctor_knows_python_and_its_environment(
    monkeypatch: pytest.MonkeyPatch, version: tuple[object, ...], prefix: str, verdict: Verdict, text: str
) -> None:
    monkeypatch.setattr(doctor, "sys", SimpleNamespace(version_info=version, prefix=prefix, base_prefix="/usr"))
    assert check("Python")[:2] == (verdict, text)


def test_doctor_knows_the_packages_of_the_front_end(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, tmp_path: Path
) -> None:
    settings.STATICFILES_DIRS = ["static", ("one", tmp_path), ("two", tmp_path / "two"), ("three", tmp_path / "three")]
    assert check("front end")[:2] == (FAIL, f"{tmp_path}/two is missing")
    settings.STATICFILES_DIRS = ["static", ("one", tmp_path)]
    node = tmp_path / "node"
    node.write_text('#!/bin/sh\n[ "$*" = --version ] && echo v20.1\n')
    node.chmod(0o700)
    monkeypatch.setattr(shutil, "which", lambda name: str(node) if name == "node" else None)
    assert check("front end")[:2] == (OK, "packages installed; Node v20.1")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert check("front end")[:2] == (OK, "packages installed; Node from PyPI")


def test_settings_may_come_from_the_environment_alone(settings: Settings, tmp_path: Path) -> None:
    settings.BASE_DIR = tmp_path
    assert check(".env")[0] is WARN
    (tmp_path / ".env").touch(mode=0o600)
    assert check(".env") == (OK, f"{tmp_path}/.env", "")


@pytest.mark.parametrize(
    ("key", "host_key", "verdict"),
    [
        ("abcde" * 10, "", OK),
        ("abcde" * 9 + "abcd", "", FAIL),
        ("abcd" * 20, "", FAIL),
        ("short", "host-1-key", OK),
    ],
)
def test_a_secret_key_is_long_and_varied(settings: Settings, key: str, host_key: str, verdict: Verdict) -> None:
    settings.SECRET_KEY, settings.COMPUTE_HOST_KEY = key, host_key
    assert check("SECRET_KEY")[0] is verdict


@pytest.mark.parametrize(
    ("url", "verdict", "text"),
    [
        ("", WARN, "embedded PostgreSQL is not running"),
        ("postgresql://x", FAIL, "DATABASE_URL does not answer: refused"),
    ],
)
def test_a_database_that_is_down_is_named_by_its_kind(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, url: str, verdict: Verdict, text: str
) -> None:
    monkeypatch.setattr(doctor, "_database_problem", lambda: "refused")
    settings.DATABASE_URL = url
    assert check("database")[:2] == (verdict, text)
    assert ("postgres/log" in check("database")[2]) == (not url)


@pytest.mark.django_db
def test_migrations_that_wait_and_the_primary_are_named(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    monkeypatch.setattr(doctor, "_database_problem", lambda: "")
    settings.DATABASE_URL = "postgresql://x"
    assert check("database")[:2] == (OK, "DATABASE_URL, all migrations applied")
    monkeypatch.setitem(connection.settings_dict, "HOST", "a,b")
    connection.ensure_connection()
    info = connection.connection.info
    assert check("database")[1] == f"DATABASE_URL, primary {info.host}:{info.port}, all migrations applied"
    monkeypatch.setattr(MigrationExecutor, "migration_plan", lambda self, targets: [1, 2])
    assert check("database")[:2] == (WARN, "DATABASE_URL: 2 migrations are not applied")


@pytest.mark.parametrize(
    ("version", "primary", "url", "verdict", "text"),
    [
        ("7.2", "", "", OK, "embedded, version 7.2"),
        ("7.2", "a:6379", "redis://x", OK, "REDIS_URL, primary a:6379, version 7.2"),
        (None, "", "redis://x", FAIL, "REDIS_URL does not answer"),
        (None, "", "", WARN, "embedded Redis is not running"),
    ],
)
def test_doctor_names_redis_by_its_kind(
    monkeypatch: pytest.MonkeyPatch,
    settings: Settings,
    version: str | None,
    primary: str,
    url: str,
    verdict: Verdict,
    text: str,
) -> None:
    monkeypatch.setattr(redis_probe, "version", lambda asked: version)
    monkeypatch.setattr(clients, "primary_of", lambda asked: primary)
    settings.REDIS_URL = url
    assert check("Redis")[:2] == (verdict, text)
    assert ("redis/redis.log" in check("Redis")[2]) == (verdict is WARN)


@pytest.mark.parametrize(
    ("url", "can_install", "engine", "verdict", "text"),
    [
        ("", False, DockerEngine(version="26"), OK, "26"),
        (docker_engine.DEFAULT_URL, True, DockerEngine(problem="none"), WARN, "none"),
        (docker_engine.DEFAULT_URL, False, DockerEngine(problem="none"), FAIL, "none"),
        (REMOTE, True, DockerEngine(problem="none"), FAIL, "none"),
    ],
)
def test_an_engine_that_make_up_installs_is_no_failure(
    monkeypatch: pytest.MonkeyPatch,
    settings: Settings,
    url: str,
    can_install: bool,
    engine: DockerEngine,
    verdict: Verdict,
    text: str,
) -> None:
    settings.COMPUTE_DOCKER_URL = url
    monkeypatch.setattr(system_packages, "can_install", lambda: can_install)
    monkeypatch.setattr(docker_engine, "examine", lambda asked: engine)
    assert check("Docker")[:2] == (verdict, text)


@pytest.mark.parametrize(
    ("networks", "verdict", "words"),
    [
        ([], OK, "is made with the first session"),
        ([{"Name": f"{NETWORK}-2", "Options": None}], OK, "is made with the first session"),
        ([{"Name": NETWORK, "Options": None}], FAIL, "lets sessions reach each other"),
        ([{"Name": NETWORK, "Options": {"com.docker.network.bridge.enable_icc": "true"}}], FAIL, "reach each other"),
        ([{"Name": NETWORK, "Options": {"com.docker.network.bridge.enable_icc": "false"}}], OK, "without traffic"),
    ],
)
def test_doctor_knows_whether_sessions_reach_each_other(
    engine: Callable[..., None], networks: list[dict[str, Any]], verdict: Verdict, words: str
) -> None:
    engine(networks=networks)
    found = check("network")
    assert (found[0], words in found[1]) == (verdict, True), found
    assert found[2] == (f"docker network rm {NETWORK}" if verdict is FAIL else "")


@pytest.mark.parametrize("verdict", [OK, WARN])
def test_doctor_finds_iptables(monkeypatch: pytest.MonkeyPatch, verdict: Verdict) -> None:
    there = {"iptables": "/usr/sbin/iptables"} if verdict is OK else {}
    monkeypatch.setattr(system_packages, "program", there.get)
    assert check("iptables")[0] is verdict


@pytest.mark.parametrize(
    ("free", "verdict", "text"),
    [
        ({}, OK, "10 GiB free at {base}"),
        ({"var": 10 * GIB - 1}, WARN, "9 GiB free at {var}"),
        ({"docker": 2 * GIB}, WARN, "2 GiB free at {docker}"),
        ({"base": 2 * GIB - 1}, FAIL, "1 GiB free at {base}"),
    ],
)
def test_the_fullest_of_all_disks_counts(
    monkeypatch: pytest.MonkeyPatch,
    settings: Settings,
    engine: Callable[..., None],
    tmp_path: Path,
    free: dict[str, int],
    verdict: Verdict,
    text: str,
) -> None:
    places = {name: tmp_path / name for name in ("base", "var", "docker")}
    for place in places.values():
        place.mkdir()
    settings.BASE_DIR, settings.COMPUTE_VAR_DIR = places["base"], places["var"]
    settings.COMPUTE_DOCKER_URL = docker_engine.DEFAULT_URL
    engine(DockerRootDir=str(places["docker"]))
    monkeypatch.setattr(
        shutil, "disk_usage", lambda folder: SimpleNamespace(free=free.get(Path(folder).name, 10 * GIB))
    )
    assert check("disk")[:2] == (verdict, text.format(**places))
    settings.COMPUTE_DOCKER_URL = REMOTE
    assert (check("disk")[0] is verdict) == ("docker" not in free)


@pytest.mark.parametrize("says", [{}, DockerException(), ReadTimeout()])
def test_without_word_of_the_engine_its_usual_folder_counts(
    monkeypatch: pytest.MonkeyPatch, says: dict[str, Any] | Exception
) -> None:
    def client() -> Engine:
        if isinstance(says, Exception):
            raise says
        return Engine(**says)

    monkeypatch.setattr(doctor, "docker_client", client)
    assert doctor._docker_root() == Path("/var/lib/docker")


@pytest.mark.parametrize(("problem", "words"), [("", "the engine bounds"), ("no xfs", "policy's limit: no xfs")])
def test_doctor_says_who_bounds_what_sessions_write(
    monkeypatch: pytest.MonkeyPatch, engine: Callable[..., None], problem: str, words: str
) -> None:
    engine(Driver="overlay2")
    monkeypatch.setattr(doctor, "quota_problem", lambda info, is_here: problem if info["Driver"] and is_here else "-")
    assert words in check("session disks")[1]


@pytest.mark.parametrize(
    ("options", "words"), [(["name=userns"], "root in them is nobody"), ([], "their users are the host's")]
)
def test_doctor_says_who_users_of_sessions_are(engine: Callable[..., None], options: list[str], words: str) -> None:
    engine(SecurityOptions=["name=seccomp,profile=builtin", *options])
    assert words in check("system calls")[1]


@pytest.mark.parametrize(
    ("url", "pins", "has_lxcfs", "verdict", "words"),
    [
        (REMOTE, True, True, WARN, ["on another machine"]),
        (docker_engine.DEFAULT_URL, True, True, OK, ["pinned to CPUs of its own", "/proc by lxcfs"]),
        (docker_engine.DEFAULT_URL, False, False, OK, ["CPUs are not pinned", "by the host worker"]),
    ],
)
def test_doctor_says_what_programs_count(
    monkeypatch: pytest.MonkeyPatch,
    settings: Settings,
    url: str,
    pins: bool,
    has_lxcfs: bool,
    verdict: Verdict,
    words: list[str],
) -> None:
    settings.COMPUTE_DOCKER_URL, settings.COMPUTE_PIN_CPUS = url, pins
    monkeypatch.setattr(doctor, "has_lxcfs", lambda: has_lxcfs)
    found = check("figures")
    assert found[0] is verdict
    assert all(each in found[1] for each in words), found


@pytest.mark.django_db
def test_doctor_counts_the_images_of_this_host(engine: Callable[..., None], settings: Settings) -> None:
    assert check("images")[:2] == (WARN, "none is registered")
    one, two = make_image(reference="example/one:1"), make_image(reference="example/two:1")
    make_image(reference="example/three:1", is_enabled=False)
    engine(images=[{"RepoTags": None}, {"RepoTags": ["example/one:1"]}])
    assert check("images") == (OK, "1 of 2 are on this host; the others are pulled when first used", "")
    engine(images=[{}])
    assert check("images")[::2] == (WARN, "`make images` builds them")
    settings.COMPUTE_HOST_KEY = "host-1-key"
    assert check("images")[::2] == (WARN, "`manage.py build_images` builds them")
    settings.COMPUTE_HOST_KEY = ""
    with builds.exclusive():
        builds.enqueue(one, 1, is_usable=False)
        builds.enqueue(two, 2, is_usable=False)
    verdict, text, hint = check("images")
    assert (verdict, f"{one} " in text, f"; {two} " in text) == (WARN, True, True)
    assert hint == "the running platform builds them, or `make images`"
    one.build.state = BuildState.FAILED
    one.build.save()
    assert check("images")[:2] == (WARN, f"could not be built: {one}")


@pytest.mark.django_db
def test_a_root_that_no_host_has_is_not_there_yet() -> None:
    assert check("storage")[1:] == (
        "no host has said yet that it has a storage root",
        "`make up` makes one, or `manage.py storageroots add`",
    )
    make_root(name="lab")
    assert check("storage")[2] == advice.BEFORE_MAKE_UP


@pytest.mark.django_db
@pytest.mark.parametrize(("off", "verdict"), [(-1.5, OK), (1.5, OK), (2.6, FAIL), (-2.6, FAIL)])
def test_clocks_agree_within_two_seconds(monkeypatch: pytest.MonkeyPatch, off: float, verdict: Verdict) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        ((now,),) = cursor.fetchall()
    wrong = now + timedelta(seconds=off)
    monkeypatch.setattr(connection, "cursor", lambda: _Said(now))
    monkeypatch.setattr(timezone, "now", lambda: wrong)
    agrees = f"agrees with the database's; {wrong:%Y-%m-%d %H:%M} UTC"
    assert check("clock")[:2] == (verdict, "3 s off the database's clock" if verdict is FAIL else agrees)


class _Said:
    """A cursor that has one row of one value."""

    def __init__(self, value: datetime) -> None:
        self._value = value.astimezone(UTC)

    def __enter__(self) -> "_Said":
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing is open."""

    def execute(self, statement: str) -> None:
        assert statement == "SELECT clock_timestamp()"

    def fetchall(self) -> list[tuple[datetime]]:
        return [(self._value,)]


@pytest.mark.parametrize(("user", "words"), [(0, "root: "), (1000, "not root: ")])
def test_doctor_says_what_its_user_may(monkeypatch: pytest.MonkeyPatch, user: int, words: str) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert check("user")[1].startswith(words)


def test_no_check_is_forgotten() -> None:
    modules = (doctor, gpus, kernel, services)
    functions = [each for module in modules for each in vars(module).values() if inspect.isfunction(each)]
    signed = [(each, inspect.signature(each)) for each in functions]
    checks = [each for each, how in signed if how.return_annotation is Finding and not how.parameters]
    assert len(checks) > 30
    assert [each for each in checks if each not in doctor.CHECKS.values()] == []
