"""What doctor says when all is well and when everything is down."""

import os
import resource
import secrets
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from django.conf import settings
from docker import APIClient
from pytest_django import Settings

from engine.containers import ATTEMPT_LABEL, INSTALLATION_LABEL
from hostworker.privileged.base import KernelUse
from hostworker.privileged.host_privileges import HostPrivileges
from operations.doctor import kernel as doctor_kernel
from operations.doctor import machine as doctor
from operations.doctor.findings import Finding, Verdict
from operations.machine import address
from sessions.tasks import enforce_deadlines
from sshserver.host_key import load_host_key
from tests.containers import ENGINE_URL
from tests.factories import make_gpu, make_host, make_root
from tests.gateways import running_gateway
from tests.live import LiveServer
from tests.ports import free_port
from tests.tiny_image import ensure_tiny_image
from tests.wait import SECONDS, until


def test_doctor_works_when_everything_is_down_and_fails(tmp_path: Path) -> None:
    down = {
        "COMPUTE_VAR_DIR": str(tmp_path),
        "COMPUTE_DOCKER_URL": f"unix://{tmp_path}/docker.sock",
        "COMPUTE_SIMULATED_GPUS": "",
        "COMPUTE_HTTP_ADDRESS": "127.0.0.1:1",
    }
    done = subprocess.run(
        [sys.executable, "manage.py", "doctor"],
        cwd=settings.BASE_DIR,
        env={**os.environ, **down},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    verdicts = {line[6:20].strip(): line[:5].strip() for line in done.stdout.splitlines()}
    assert verdicts["Python"] == "OK"
    assert verdicts["Docker"] == "FAIL"
    assert [verdicts[name] for name in ("database", "Redis", "images", "hosts", "storage", "clock")] == ["WARN"] * 6
    assert "-> `make up` starts it" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.loopback
@pytest.mark.django_db
def test_running_services_with_all_migrations_are_well(settings: Settings) -> None:
    settings.COMPUTE_CLUSTER_ADDRESS = "127.0.0.1"  # or it would be asked for the route elsewhere
    findings = dict(doctor.examine())
    assert findings["database"].verdict is Verdict.OK
    assert findings["database"].text == "embedded, all migrations applied"
    assert findings["Redis"].verdict is Verdict.OK
    assert findings["clock"].verdict is Verdict.OK
    assert findings["GPUs"].text == "SIMULATED: 1x8GiB"


def test_a_low_limit_on_open_files_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    for hard, verdict in ((4095, Verdict.FAIL), (4096, Verdict.OK), (resource.RLIM_INFINITY, Verdict.OK)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, hard=hard: (1024, hard))
        assert doctor.CHECKS["open files"]().verdict is verdict


@pytest.mark.django_db
def test_doctor_says_why_gpus_cannot_be_divided(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    settings.COMPUTE_PRIVILEGED_HELPER = False
    make_gpu(host=make_host(name="test-host"))
    assert doctor.CHECKS["fGPU"]().text == "the hook is built; tiers: hook"
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    finding = doctor.CHECKS["fGPU"]()
    assert finding.verdict is Verdict.WARN
    assert finding.text == "this host lends whole GPUs only: its worker does not run as root."


@pytest.mark.django_db
def test_doctor_names_missing_storage_and_kinds_of_quota() -> None:
    assert doctor.CHECKS["storage"]().verdict is Verdict.WARN
    one, two = make_host(name="one"), make_host(name="two")
    root = make_root(one, two, name="lab", is_shared=True)
    finding = doctor.CHECKS["storage"]()
    assert finding.verdict is Verdict.OK
    assert "lab on one: quotas measured; what exceeds it becomes read-only" in finding.text
    root.on_hosts.filter(host=two).update(is_present=False, problem="It does not answer.")
    finding = doctor.CHECKS["storage"]()
    assert finding.verdict is Verdict.WARN
    assert finding.text == "Storage root lab is missing on two: It does not answer."
    root.on_hosts.update(is_present=False, problem="It has no id-mapped mounts.")
    assert doctor.CHECKS["storage"]().text == "Storage root lab is on no host: It has no id-mapped mounts."


@pytest.mark.parametrize(
    ("group", "mode", "hint"),
    [
        (0, 0o600, ""),
        (0, 0o640, "chmod 600"),
        (1000, 0o640, ""),  # as docs/install.md installs it: the platform's user reads it by its group
        (1000, 0o644, "chmod 640"),
        (1000, 0o660, "chmod 640"),
    ],
)
def test_doctor_says_who_may_read_the_settings(
    group: int, mode: int, hint: str, settings: Settings, tmp_path: Path
) -> None:
    settings.BASE_DIR = tmp_path
    (path := tmp_path / ".env").touch()
    os.chown(path, 0, group)
    path.chmod(mode)
    finding = doctor.CHECKS[".env"]()
    assert finding.verdict is (Verdict.WARN if hint else Verdict.OK)
    assert finding.hint == (f"{hint} {path}" if hint else "")


@pytest.mark.parametrize("key", ["short", "x" * 60])
def test_a_weak_secret_key_is_a_failure(key: str, settings: Settings) -> None:
    settings.SECRET_KEY = key
    assert doctor.CHECKS["SECRET_KEY"]().verdict is Verdict.FAIL


def test_malformed_simulated_gpus_are_a_failure(settings: Settings) -> None:
    settings.COMPUTE_SIMULATED_GPUS = "garbage"
    finding = doctor.CHECKS["GPUs"]()
    assert finding.verdict is Verdict.FAIL
    assert "garbage" in finding.text
    assert "1x8GiB" in finding.hint


def test_a_long_database_error_takes_one_line(settings: Settings) -> None:
    environment = {**os.environ, "DATABASE_URL": "postgresql://nobody:wrong@127.0.0.1:1/none"}
    command = [sys.executable, "manage.py", "doctor"]
    done = subprocess.run(command, cwd=settings.BASE_DIR, env=environment, capture_output=True, text=True, check=False)
    assert all(line.startswith(("OK ", "WARN ", "FAIL ")) for line in done.stdout.splitlines()[:-1]), done.stdout
    assert any(line.endswith("-> check DATABASE_URL in .env") for line in done.stdout.splitlines())


def test_a_line_has_verdict_name_text_and_hint() -> None:
    finding = Finding(Verdict.WARN, "not running", "start it")
    assert finding.line("Redis") == "WARN  Redis          not running -> start it"


def test_without_a_gateway_there_is_nothing_to_say(settings: Settings) -> None:
    settings.COMPUTE_GATEWAY_ADDRESS = ""
    assert doctor.CHECKS["gateway"]().verdict is Verdict.OK


@pytest.mark.docker
@pytest.mark.django_db(transaction=True)
def test_doctor_checks_that_the_gateway_forwards(tmp_path: Path, settings: Settings) -> None:
    with running_gateway(settings.COMPUTE_HOST_NAME, tmp_path / "gateway.log") as gateway:
        settings.COMPUTE_GATEWAY_URL = gateway.url
        settings.COMPUTE_GATEWAY_ADDRESS = gateway.url.removeprefix("http://")
        assert doctor.CHECKS["gateway"]().line("gateway") == f"OK    gateway        passes requests on at {gateway.url}"
        settings.COMPUTE_HOST_NAME = "another"
        finding = doctor.CHECKS["gateway"]()
        assert finding.verdict is Verdict.FAIL
        assert "refused the request" in finding.text
    assert "cannot be reached" in doctor.CHECKS["gateway"]().text
    with socket.create_server(("127.0.0.1", 0)) as other:
        settings.COMPUTE_GATEWAY_URL = f"http://127.0.0.1:{other.getsockname()[1]}"
        answering = threading.Thread(target=answer_nonsense, args=(other,))
        answering.start()
        assert "is not understood" in doctor.CHECKS["gateway"]().text
        answering.join()


def answer_nonsense(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection, suppress(ConnectionError):  # who asked leaves at the first strange byte
        connection.recv(65536)
        connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")


@pytest.mark.loopback
@pytest.mark.django_db(transaction=True)
def test_doctor_knows_its_own_web_server_from_anothers(
    server: LiveServer, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(address, "TIMEOUT_SECONDS", SECONDS)
    settings.COMPUTE_HTTP_ADDRESS = f"127.0.0.1:{server.port}"
    until(lambda: doctor.CHECKS["web"]().verdict is Verdict.OK)
    settings.SECRET_KEY = "of another installation"
    finding = doctor.CHECKS["web"]()
    assert finding.verdict is Verdict.FAIL
    assert "another installation" in finding.text


@pytest.mark.django_db
def test_doctor_notices_that_no_scheduler_runs() -> None:
    assert doctor.CHECKS["scheduler"]().verdict is Verdict.WARN
    enforce_deadlines()
    assert doctor.CHECKS["scheduler"]().verdict is Verdict.OK


@pytest.mark.loopback
def test_doctor_knows_its_own_ssh_server_by_the_key(settings: Settings, tmp_path: Path) -> None:
    settings.COMPUTE_SSH_ADDRESS = f"127.0.0.1:{free_port()}"
    assert doctor.CHECKS["SSH"]().verdict is Verdict.WARN
    settings.COMPUTE_VAR_DIR = tmp_path
    load_host_key(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        settings.COMPUTE_SSH_ADDRESS = f"127.0.0.1:{other.getsockname()[1]}"
        answering = threading.Thread(target=answer_nonsense, args=(other,))
        answering.start()
        assert doctor.CHECKS["SSH"]().verdict is Verdict.FAIL
        answering.join()


@pytest.mark.docker
@pytest.mark.django_db
def test_doctor_sees_the_containers_of_another_installation() -> None:
    client = APIClient(ENGINE_URL, version="auto")
    made = client.create_container(ensure_tiny_image(), ["sleep", "60"], labels={INSTALLATION_LABEL: "another"})
    client.start(made)
    try:
        finding = doctor.CHECKS["neighbours"]()
        assert finding.verdict is Verdict.WARN
        assert "other installations" in finding.text
    finally:
        client.remove_container(made, force=True)
        client.close()


def test_bogus_settings_are_a_failure(settings: Settings) -> None:
    assert doctor.CHECKS["settings"]().verdict is Verdict.OK
    settings.COMPUTE_TRUSTED_PROXIES = ["my proxy"]
    finding = doctor.CHECKS["settings"]()
    assert finding.verdict is Verdict.FAIL
    assert "my proxy" in finding.text


@pytest.mark.parametrize(
    ("options", "verdict", "words"),
    [
        (["name=seccomp,profile=builtin"], Verdict.OK, "the platform's profile"),
        (["name=seccomp,profile=/etc/strict.json"], Verdict.OK, "the engine was configured with"),
        (["name=seccomp,profile=default", "name=userns"], Verdict.OK, "root in them is nobody on this host"),
        (["name=seccomp,profile=unconfined"], Verdict.WARN, "every system call"),
        ([], Verdict.WARN, "every system call"),
    ],
)
def test_doctor_says_which_filter_sessions_have(
    monkeypatch: pytest.MonkeyPatch, options: list[str], verdict: Verdict, words: str
) -> None:
    monkeypatch.setattr(APIClient, "info", lambda _: {"SecurityOptions": options})
    finding = doctor.CHECKS["system calls"]()
    assert (finding.verdict, words in finding.text) == (verdict, True), finding


@pytest.mark.docker
def test_doctor_says_who_holds_most_of_what_sessions_share(monkeypatch: pytest.MonkeyPatch) -> None:
    low: dict[str, int] = {}
    monkeypatch.setattr(doctor_kernel, "low_limits", lambda: low)
    client = APIClient(ENGINE_URL, version="auto")
    name = f"test-shared-{secrets.token_hex(4)}"
    made = client.create_container(ensure_tiny_image(), ["sleep", "60"], labels={ATTEMPT_LABEL: "1"}, name=name)
    client.start(made)
    try:
        finding = doctor.CHECKS["shared limits"]()
        assert finding.verdict is Verdict.WARN
        assert "cannot lift these limits; most of each: " in finding.text
        low["fs.inotify.max_user_instances"] = 128
        finding = doctor.CHECKS["shared limits"]()
        assert (finding.verdict, finding.hint) == (Verdict.WARN, doctor_kernel.HINT)
        assert "one session can take what all share: fs.inotify.max_user_instances is 128" in finding.text
    finally:
        client.remove_container(made, force=True)
        client.close()
    use = KernelUse(held={"a": {"open files": 7}, "b": {"open files": 9}})
    monkeypatch.setattr(HostPrivileges, "kernel_use", lambda _, containers: use)
    assert doctor_kernel._most({"a": "one", "b": "two"}) == "; most of each: 9 open files by two"
