"""What doctor says of the platform's own processes, and of what sessions of this host share."""

import resource
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import asyncssh
import pytest
from django.core.checks import CheckMessage, Error, Warning
from docker.errors import NotFound
from pytest_django import Settings

from engine.containers import INSTALLATION_LABEL
from engine.engine import ExecError
from hostworker.privileged.base import KernelUse, PrivilegesError
from hostworker.runtime.container_config import UNLIMITED
from operations.doctor import kernel as doctor_kernel
from operations.doctor import services as doctor
from operations.doctor.findings import Finding, Verdict
from operations.health import checks as health
from operations.machine import address
from operations.machine.address import Address
from proxy.limits import MIN_OPEN_FILES
from resources import clock, heartbeats, procfs
from resources.heartbeats import HeartbeatName
from resources.models import Installation
from sessions.tasks import enforce_deadlines
from sshserver.host_key import NAME, load_host_key
from tests.factories import make_host

OK, WARN, FAIL = Verdict
UNTRUSTED = "COMPUTE_HTTPS without COMPUTE_TRUSTED_PROXIES: all users count as one address for limits"


def told(finding: Finding) -> tuple[Verdict, str]:
    return finding.verdict, finding.text


def answers(monkeypatch: pytest.MonkeyPatch, *, is_free: bool) -> None:
    """Have every address be free, or taken."""
    monkeypatch.setattr(Address, "is_free", lambda self, setting="": is_free)


@pytest.mark.parametrize(
    ("messages", "https", "proxies", "verdict", "text"),
    [
        ([], False, [], OK, "valid"),
        ([Warning("odd")], True, ["10.0.0.1"], OK, "valid"),
        ([Warning("odd"), Error("first\n one", hint="mend it"), Error("second")], True, [], FAIL, "first one"),
        ([Error("first")], False, [], FAIL, "first"),
        ([], True, [], WARN, UNTRUSTED),
    ],
)
def test_doctor_tells_the_first_error_in_the_settings(
    monkeypatch: pytest.MonkeyPatch,
    settings: Settings,
    messages: list[CheckMessage],
    https: bool,
    proxies: list[str],
    verdict: Verdict,
    text: str,
) -> None:
    monkeypatch.setattr(doctor, "run_checks", lambda: messages)
    settings.COMPUTE_HTTPS, settings.COMPUTE_TRUSTED_PROXIES = https, proxies
    finding = doctor.settings_are_valid()
    assert told(finding) == (verdict, text)
    assert (finding.hint == "mend it") == (text == "first one")


@pytest.mark.parametrize(
    ("status", "installation", "is_free", "verdict", "words"),
    [
        (None, "", True, OK, "127.0.0.1:8000 is free"),
        (None, "", False, FAIL, "is taken by another program"),
        (200, "ours", False, OK, "healthy at http://127.0.0.1:8000/"),
        (200, "ours", True, OK, "healthy at http://127.0.0.1:8000/"),
        (503, "ours", False, FAIL, "http://127.0.0.1:8000/healthz reports a fault"),
        (404, "ours", False, FAIL, "is taken by another program"),
        (200, "theirs", False, FAIL, "is taken by another installation"),
        (404, "", False, FAIL, "is taken by another installation"),
    ],
)
def test_doctor_says_who_has_the_web_servers_address(
    monkeypatch: pytest.MonkeyPatch,
    settings: Settings,
    status: int | None,
    installation: str,
    is_free: bool,
    verdict: Verdict,
    words: str,
) -> None:
    settings.COMPUTE_HTTP_ADDRESS = "127.0.0.1:8000"
    answers(monkeypatch, is_free=is_free)
    monkeypatch.setattr(health, "installation", lambda: "ours")
    monkeypatch.setattr(address, "health_of", lambda where, hosts: (status, installation))
    finding = doctor.web()
    assert (finding.verdict, words in finding.text) == (verdict, True), finding
    assert (finding.hint == "COMPUTE_HTTP_ADDRESS") == ("is taken" in words)


@pytest.mark.parametrize(
    ("ages", "verdict", "text"),
    [
        ({HeartbeatName.BEAT: 30.0}, OK, "enforced deadlines 30 s ago"),
        ({HeartbeatName.BEAT: 30.5}, WARN, "no scheduler and beat of this installation have run lately"),
        ({}, WARN, "no scheduler and beat of this installation have run lately"),
    ],
)
def test_a_scheduler_of_half_a_minute_ago_has_stopped(
    monkeypatch: pytest.MonkeyPatch, ages: dict[str, float], verdict: Verdict, text: str
) -> None:
    monkeypatch.setattr(heartbeats, "ages", lambda names: ages)
    assert told(doctor.scheduler()) == (verdict, text)


@pytest.mark.django_db
def test_a_wrong_clock_makes_no_scheduler_late(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = time.time() + 3600
    monkeypatch.setattr(time, "time", lambda: wrong)
    at = clock.now()
    monkeypatch.setattr(clock, "now", lambda: at)
    monkeypatch.setattr(heartbeats, "_noted", {})
    enforce_deadlines()
    assert told(doctor.scheduler()) == (OK, "enforced deadlines 0 s ago")


@pytest.mark.parametrize("is_ours", [True, False, None])
def test_ssh_is_known_by_its_host_key(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, tmp_path: Any, is_ours: bool | None
) -> None:
    settings.COMPUTE_SSH_ADDRESS, settings.COMPUTE_VAR_DIR = "127.0.0.1:2222", tmp_path
    key = load_host_key(tmp_path) if is_ours else asyncssh.generate_private_key("ssh-ed25519")

    async def found(host: str, port: int) -> asyncssh.SSHKey:
        assert (host, port) == ("127.0.0.1", 2222)
        if is_ours is None:
            raise asyncssh.DisconnectError(1, "no")
        return key

    monkeypatch.setattr(asyncssh, "get_server_host_key", found)
    answers(monkeypatch, is_free=is_ours is None)
    assert (
        told(doctor.ssh())
        == {
            True: (OK, f"at 127.0.0.1:2222, host key {key.get_fingerprint()}"),
            False: (FAIL, "127.0.0.1:2222 is taken by another program"),
            None: (WARN, "nothing listens at 127.0.0.1:2222"),
        }[is_ours]
    )
    settings.COMPUTE_SSH_ADDRESS = ""
    assert doctor.ssh().verdict is OK


@pytest.mark.parametrize("error", [OSError, TimeoutError])
def test_an_address_that_answers_no_ssh_is_taken(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, tmp_path: Any, error: type[Exception]
) -> None:
    async def fails(host: str, port: int) -> None:
        raise error

    settings.COMPUTE_SSH_ADDRESS, settings.COMPUTE_VAR_DIR = "127.0.0.1:2222", tmp_path
    (tmp_path / NAME).write_text("no key")
    monkeypatch.setattr(asyncssh, "get_server_host_key", fails)
    answers(monkeypatch, is_free=False)
    assert told(doctor.ssh()) == (FAIL, "127.0.0.1:2222 is taken by another program")


@pytest.mark.parametrize(
    ("status", "verdict", "words"),
    [(404, OK, "passes requests on at"), (200, FAIL, "is taken by another program"), (None, FAIL, "refused")],
)
def test_a_gateway_passes_on_what_the_engine_says(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, status: int | None, verdict: Verdict, words: str
) -> None:
    async def request(method: str, path: str) -> SimpleNamespace:
        if status is None:
            raise ExecError("refused")
        return SimpleNamespace(status=status)

    settings.COMPUTE_GATEWAY_ADDRESS, settings.COMPUTE_GATEWAY_URL = "10.0.0.1:9000", "http://10.0.0.1:9000"
    monkeypatch.setattr(doctor, "engine_behind", lambda url, name: SimpleNamespace(request=request))
    finding = doctor.gateway()
    assert (finding.verdict, words in finding.text) == (verdict, True), finding
    assert "http://10.0.0.1:9000" in finding.text
    assert (finding.hint == "COMPUTE_GATEWAY_ADDRESS") == (status == 200)


class Engine:
    """An engine with these containers: by id, their labels, or their limits."""

    def __init__(self, containers: dict[str, Any]) -> None:
        self._containers = containers

    def containers(self, filters: dict[str, list[str]]) -> list[dict[str, Any]]:
        return [{"Id": each, "Names": [f"/{each}-name"], "Labels": of} for each, of in self._containers.items()]

    def inspect_container(self, container: str) -> dict[str, Any]:
        if self._containers[container] == "gone":
            raise NotFound("no such container")
        return {"HostConfig": {"Ulimits": self._containers[container]}}

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.django_db
def test_containers_of_other_installations_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"a": Installation.current_key(), "b": "two", "c": "two", "d": "three"}
    engine = Engine({name: {INSTALLATION_LABEL: key} for name, key in keys.items()})
    monkeypatch.setattr(doctor, "docker_client", lambda: engine)
    assert told(doctor.neighbours()) == (WARN, "2 other installations run 3 containers on this engine")
    monkeypatch.setattr(doctor, "docker_client", lambda: Engine({"a": {INSTALLATION_LABEL: keys["a"]}}))
    assert told(doctor.neighbours()) == (OK, "no other installation uses this engine")


@pytest.mark.django_db
def test_silent_hosts_are_named_by_the_shared_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(doctor.hosts()) == (WARN, "no host has registered")
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now)
    make_host(name="one", heartbeat_at=now - timedelta(seconds=20))
    assert told(doctor.hosts()) == (OK, "one READY")
    make_host(name="two", heartbeat_at=now - timedelta(seconds=21))
    assert told(doctor.hosts()) == (WARN, "silent: two")


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Finding]:
    """Return what doctor says of containers with these limits, where these of the kernel are low."""

    def ask(low: dict[str, int] | None = None, **containers: Any) -> Finding:
        monkeypatch.setattr(doctor_kernel, "low_limits", lambda: low or {})
        monkeypatch.setattr(doctor_kernel, "docker_client", lambda: Engine(containers))
        return doctor_kernel.shared_limits()

    return ask


def use(monkeypatch: pytest.MonkeyPatch, **held: dict[str, int]) -> None:
    """Have the containers hold so much."""

    def kernel_use(containers: list[str]) -> KernelUse:
        assert containers == sorted(containers)
        return KernelUse(held=held)

    monkeypatch.setattr(doctor_kernel, "get_privileges", lambda: SimpleNamespace(kernel_use=kernel_use))


def test_one_container_without_a_lifted_limit_is_enough(
    monkeypatch: pytest.MonkeyPatch, sessions: Callable[..., Finding]
) -> None:
    use(monkeypatch)
    assert told(sessions(a=list(UNLIMITED))) == (OK, "no session comes to a limit that others share")
    for too_few in (UNLIMITED[1:], (), None):
        finding = sessions(a=list(UNLIMITED), b=too_few)
        assert (finding.verdict, finding.hint) == (WARN, doctor_kernel.ENGINE_HINT)
    assert "shows" not in sessions(a="gone", b=list(UNLIMITED)).text


def test_without_a_session_nobody_knows_the_engines_limits(sessions: Callable[..., Finding]) -> None:
    for containers in ({}, {"a": "gone"}):
        assert told(sessions(**containers)) == (
            OK,
            "the kernel's are high; those of the engine show once a session runs",
        )


def test_low_limits_and_who_holds_most_are_named(
    monkeypatch: pytest.MonkeyPatch, sessions: Callable[..., Finding]
) -> None:
    use(monkeypatch, b={"files": 7, "none": 0}, a={"files": 9, "pipes": 1}, c={"files": 8})
    finding = sessions({"x": 1, "y": 2}, c=None, a=None, b=None)
    assert finding.text == (
        "one session can take what all share: x is 1, y is 2; most of each: 9 files by a-name, 1 pipes by a-name"
    )
    assert finding.hint == doctor_kernel.HINT
    use(monkeypatch, a={"none": 0})
    assert "most of each" not in sessions(a=None).text


def test_who_holds_most_is_left_out_where_nobody_may_look(
    monkeypatch: pytest.MonkeyPatch, sessions: Callable[..., Finding], settings: Settings
) -> None:
    def refuses(containers: list[str]) -> KernelUse:
        raise PrivilegesError("no root")

    monkeypatch.setattr(doctor_kernel, "get_privileges", lambda: SimpleNamespace(kernel_use=refuses))
    assert told(sessions(a=list(UNLIMITED))) == (OK, "no session comes to a limit that others share")
    settings.COMPUTE_DOCKER_URL = "tcp://10.0.0.9:2375"
    assert told(sessions()) == (WARN, "unknown: the container engine is on another machine")


def test_directories_of_cgroups_without_a_mount_are_named(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, tmp_path: Path
) -> None:
    tree, mounts = tmp_path / "cgroup", tmp_path / "proc/self/mountinfo"
    for name in ("memory", "cpu,cpuacct", "rdma", "old misc"):
        (tree / name).mkdir(parents=True)
    (tree / "cpu").symlink_to("cpu,cpuacct")
    mounts.parent.mkdir(parents=True)
    monkeypatch.setattr(procfs, "PROC", tmp_path / "proc")
    monkeypatch.setattr(doctor_kernel, "CGROUPS", tree)
    kinds = {"": "tmpfs", "/memory": "cgroup", "/cpu,cpuacct": "cgroup"}
    mounts.write_text("".join(f"9 8 0:5 / {tree}{at} rw - {kind} x rw\n" for at, kind in kinds.items()))
    finding = doctor_kernel.cgroups()
    misses = "so the engine misses that sessions run out of memory"
    assert told(finding) == (WARN, f"not mounted: {tree}/old misc, {tree}/rdma; {misses}")
    assert finding.hint == f"rm -r --one-file-system '{tree}/old misc' {tree}/rdma, then restart the engine"
    for name in ("rdma", "old misc"):
        (tree / name).rmdir()
    assert told(doctor_kernel.cgroups()) == (OK, "version 1, each controller is mounted")
    mounts.write_text(f"9 8 0:5 / {tree} rw - cgroup2 x rw\n")
    (tree / "system.slice").mkdir()
    assert told(doctor_kernel.cgroups()) == (OK, "version 2")
    settings.COMPUTE_DOCKER_URL = "tcp://10.0.0.9:2375"
    assert told(doctor_kernel.cgroups()) == (WARN, "unknown: the container engine is on another machine")


@pytest.mark.parametrize(("hard", "number"), [(8192, "8192 in"), (resource.RLIM_INFINITY, "no limit in")])
def test_doctor_says_how_many_files_may_be_open(monkeypatch: pytest.MonkeyPatch, hard: int, number: str) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1024, hard))
    text = doctor_kernel.open_files().text
    assert text.startswith(f"{number} a process")
    assert f"at least {MIN_OPEN_FILES} are" in text
