"""Services of this machine: by the supervisor of `make up`, by systemd, and by Docker Compose."""

import asyncio
import io
import json
import os
import secrets
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from pytest_django import Settings

from accounts.models import AuditEntry, User
from hostworker import tasks
from operations import embedded
from operations.services.base import (
    ServiceAction,
    ServiceControlError,
    ServiceManager,
    ServiceState,
    ServiceStatus,
)
from operations.services.compose import ONE_OFF_LABEL, PROJECT_LABEL, SERVICE_LABEL, ComposeManager
from operations.services.supervisor import SupervisorManager
from operations.services.systemd import SystemdManager
from operations.supervisor.supervisor import Command, ServiceError, SupervisedService, Supervisor
from resources.models import Installation
from tests.containers import ENGINE_URL, running_container
from tests.factories import make_host
from tests.tiny_image import ensure_tiny_image
from tests.wait import until

CHECKS_SECONDS = 0.1
WAIT = "import signal, os; print('ready', os.getpid(), flush=True); signal.pause()"
SHOWN = """Id=gpuplatform-web.service
LoadState=loaded
UnitFileState=enabled
ActiveState=active
MainPID=4711
NRestarts=2
StateChangeTimestamp=@1763870000

Id=gpuplatform-ssh.service
LoadState=loaded
UnitFileState=enabled
ActiveState=failed
MainPID=0
NRestarts=0
StateChangeTimestamp=@1763870001

Id=gpuplatform-beat.service
LoadState=loaded
UnitFileState=enabled
ActiveState=inactive
MainPID=0
NRestarts=0
StateChangeTimestamp=@1763870003

Id=gpuplatform-gateway.service
LoadState=loaded
UnitFileState=disabled
ActiveState=inactive
MainPID=0
NRestarts=0
StateChangeTimestamp=

Id=postgresql.service
LoadState=loaded
UnitFileState=enabled
ActiveState=active
MainPID=0
NRestarts=0
StateChangeTimestamp=@1763870002

Id=redis-server.service
LoadState=not-found
ActiveState=inactive
MainPID=0
"""


class FakeManager:
    """A manager with two services, which does as it is told."""

    title = "a test"

    def __init__(self) -> None:
        self.acts: list[tuple[str, str]] = []

    def states(self) -> list[ServiceState]:
        return [ServiceState(name=name, status=ServiceStatus.RUNNING, pid=1) for name in ("ssh", "web")]

    def act(self, action: ServiceAction, name: str) -> None:
        self.acts.append((action.value, name))

    def log(self, name: str, lines: int) -> list[str]:
        if name not in ("ssh", "web"):
            raise ServiceControlError("there is no such service")
        return [f"<b>{name}</b>"] * min(lines, 3)


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> FakeManager:
    fake = FakeManager()
    for module in ("operations.services.views", "operations.services.api", "operations.management.commands.services"):
        monkeypatch.setattr(f"{module}.local_manager", lambda: fake)
    return fake


@pytest.fixture
def superadmin(db: None) -> User:
    Installation.current_key()
    return User.objects.create_superuser("root@example.org", "a long password")


def state_of(manager: ServiceManager, name: str) -> ServiceState:
    return next(state for state in manager.states() if state.name == name)


async def test_the_supervisor_stops_starts_and_restarts_services(tmp_path: Path) -> None:
    output = io.StringIO()
    is_up = [True]
    server = SupervisedService(
        name="a server",
        is_up=lambda: is_up[0],
        start=lambda: is_up.__setitem__(0, True),
        stop=lambda: is_up.__setitem__(0, False),
        short_name="redis",
        log=tmp_path / "log",
    )
    (tmp_path / "log").write_text("one\ntwo\n")
    path = embedded.supervisor_socket(tmp_path)
    web = Command(name="web", arguments=[sys.executable, "-c", WAIT])
    supervisor = Supervisor([web], folder=tmp_path, output=output, services=[server], control=path, check_every=0.01)
    failures: list[BaseException] = []

    def drive(ready: bool) -> None:
        try:
            _drive(SupervisorManager(path), path, is_up)
        except BaseException as failure:  # of another thread, whose failure pytest would not see
            failures.append(failure)
        os.kill(os.getpid(), signal.SIGTERM)

    assert await supervisor.run(lambda: "ready" in output.getvalue(), drive) is None
    assert not failures, failures
    assert not path.exists()


def _drive(manager: SupervisorManager, path: Path, is_up: list[bool]) -> None:
    until(manager.is_running)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    first = state_of(manager, "web")
    assert (first.status, first.restarts) == (ServiceStatus.RUNNING, 0)
    manager.act(ServiceAction.STOP, "web")
    stopped = state_of(manager, "web")
    assert (stopped.status, stopped.pid) == (ServiceStatus.STOPPED, None)
    manager.act(ServiceAction.START, "web")
    second = until(lambda: state_of(manager, "web").pid)
    assert second != first.pid
    until(lambda: len(manager.log("web", 10)) == 2)
    manager.act(ServiceAction.RESTART, "web")
    until(lambda: state_of(manager, "web").pid not in (None, second))
    assert state_of(manager, "web").restarts == 0  # these count what nobody wanted
    manager.act(ServiceAction.STOP, "redis")
    assert (is_up[0], state_of(manager, "redis").status) == (False, ServiceStatus.STOPPED)
    manager.act(ServiceAction.START, "redis")
    assert (is_up[0], manager.log("redis", 1)) == (True, ["two"])
    for name in ("nothing", "../web"):
        with pytest.raises(ServiceControlError, match="no service"):
            manager.act(ServiceAction.STOP, name)


async def test_a_server_on_demand_is_not_taken_for_faulty(tmp_path: Path) -> None:
    output, path = StopsWhatIsDown(), embedded.supervisor_socket(tmp_path)
    server = SlowServer()
    supervisor = Supervisor(
        [Command(name="web", arguments=[sys.executable, "-c", WAIT])],
        folder=tmp_path,
        output=output,
        services=[server.as_service()],
        control=path,
        check_every=0.001,
        first_delay=0.01,
    )
    output.supervisor = supervisor
    failures: list[BaseException] = []

    def drive(ready: bool) -> None:
        try:
            _drive_slow(SupervisorManager(path), server, output)
        except BaseException as failure:  # of another thread, whose failure pytest would not see
            failures.append(failure)
        os.kill(os.getpid(), signal.SIGTERM)

    assert await supervisor.run(lambda: "ready" in output.getvalue(), drive) is None
    assert not failures, failures


class StopsWhatIsDown(io.StringIO):
    """Output of a supervisor that has a server stopped on demand as soon as it says that it is down."""

    supervisor: Supervisor
    stopping: "asyncio.Task[None]"

    def write(self, text: str, /) -> int:
        if "is down; it is started again" in text:
            self.stopping = asyncio.create_task(self.supervisor.act(ServiceAction.STOP, "redis"))
        return super().write(text)


class SlowServer:
    """A server that takes a hundred checks to start."""

    def __init__(self) -> None:
        self.is_up, self.starts, self.problem = True, 0, ""

    def as_service(self) -> SupervisedService:
        def stop() -> None:
            self.is_up = False

        return SupervisedService(
            name="a server", is_up=lambda: self.is_up, start=self.start, stop=stop, short_name="redis"
        )

    def start(self) -> None:
        self.starts += 1
        if self.problem:
            raise ServiceError(self.problem)
        time.sleep(CHECKS_SECONDS)
        self.is_up = True


def _drive_slow(manager: SupervisorManager, server: SlowServer, output: io.StringIO) -> None:
    until(manager.is_running)
    manager.act(ServiceAction.RESTART, "redis")
    assert (server.starts, "is down" in output.getvalue()) == (1, False)
    server.is_up = False  # by itself
    until(lambda: state_of(manager, "redis").status == ServiceStatus.STOPPED)
    time.sleep(CHECKS_SECONDS)  # in which it would be started again
    assert (server.starts, server.is_up) == (1, False)
    server.problem = "the disk is full"
    with pytest.raises(ServiceControlError, match="the disk is full"):
        manager.act(ServiceAction.START, "redis")


@pytest.mark.loopback
def test_a_supervisor_that_ends_has_not_done_what_was_asked(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as supervisor:
        supervisor.bind(str(tmp_path / "socket"))
        supervisor.listen()
        manager = SupervisorManager(tmp_path / "socket")

        def end() -> None:
            connection, _ = supervisor.accept()
            connection.recv(1000)
            connection.close()

        for ask in (manager.states, lambda: manager.act(ServiceAction.RESTART, "web")):
            thread = Thread(target=end)
            thread.start()
            with pytest.raises(ServiceControlError, match="does not respond"):
                ask()
            thread.join()


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[list[str]]]:
    """Put a systemctl on the path that shows SHOWN, and return what it and journalctl were called with.

    As systemd's own, it shows stopped units with --all alone.
    """
    (tmp_path / "all").write_text(SHOWN)
    (tmp_path / "shown").write_text("\n\n".join(each for each in SHOWN.split("\n\n") if "inactive" not in each))
    calls = tmp_path / "calls"
    for name in ("systemctl", "journalctl"):
        script = f"""#!/bin/sh
printf '%s\\n' "{name} $*" >>{calls}
case "$*" in *--all*) cat {tmp_path}/all;; show*) cat {tmp_path}/shown;; esac
[ {name} = systemctl ] || printf 'one\\ntwo\\n'
"""
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return lambda: [line.split() for line in calls.read_text().splitlines()]


def test_a_journal_without_right_is_no_empty_log(systemd: Callable[[], list[list[str]]], tmp_path: Path) -> None:
    hint = "Users in groups 'adm', 'systemd-journal' can see all messages."  # as journalctl 252 puts it, but for cat
    script = f"#!/bin/sh\ncase $* in *cat*) ;; *) echo '-- No entries --'; echo \"{hint}\" >&2;; esac\n"
    (tmp_path / "journalctl").write_text(script)
    with pytest.raises(ServiceControlError, match="add it to the group systemd-journal"):
        SystemdManager().log("web", 7)
    (tmp_path / "journalctl").write_text("#!/bin/sh\necho '-- No entries --'\n")
    assert SystemdManager().log("web", 7) == []


def test_units_of_systemd_are_shown_and_asked(systemd: Callable[[], list[list[str]]]) -> None:
    manager = SystemdManager()
    found = {state.name: (state.status, state.pid, state.restarts) for state in manager.states()}
    assert found == {
        "beat": (ServiceStatus.STOPPED, None, 0),
        "postgresql": (ServiceStatus.RUNNING, None, 0),
        "ssh": (ServiceStatus.FAILED, None, 0),
        "web": (ServiceStatus.RUNNING, 4711, 2),
    }
    manager.act(ServiceAction.RESTART, "web")
    assert systemd()[-1] == ["systemctl", "--no-ask-password", "restart", "gpuplatform-web.service"]
    assert manager.log("postgresql", 7) == ["one", "two"]
    assert systemd()[-1][-3:] == ["--lines=7", "--unit=postgresql@*.service", "--unit=postgresql.service"]
    for name in ("gateway", "sshd", "--user"):
        with pytest.raises(ServiceControlError, match="no service"):
            manager.act(ServiceAction.START, name)


@pytest.mark.django_db
def test_the_command_names_what_is_wrong(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.COMPUTE_VAR_DIR = tmp_path
    for kind in (SystemdManager, ComposeManager):
        monkeypatch.setattr(kind, "is_running", lambda self: False)
    with pytest.raises(CommandError, match="neither by `make up` nor by systemd"):
        call_command("services")


def test_the_command_shows_acts_and_records(manager: FakeManager, superadmin: User) -> None:
    output = io.StringIO()
    call_command("services", "--json", stdout=output)
    assert [state["name"] for state in json.loads(output.getvalue())] == ["ssh", "web"]
    call_command("services", "logs", "web", "--lines", "2", stdout=output)
    call_command("services", "restart")
    assert manager.acts == [("restart", "ssh"), ("restart", "web")]
    assert [entry.changes["service"] for entry in AuditEntry.objects.filter(action="restart_service")] == [
        [None, "web"],
        [None, "ssh"],
    ]
    for arguments, problem in (
        (("stop", "nothing"), "There is no service nothing"),
        (("logs",), "name the service"),
        (("logs", "web", "--lines", "0"), "--lines"),
    ):
        with pytest.raises(CommandError, match=problem):
            call_command("services", *arguments)
    assert len(manager.acts) == 2


def test_superadmins_act_on_services_by_page_and_api(manager: FakeManager, superadmin: User, client: Client) -> None:
    client.force_login(superadmin)
    page = client.get("/admin/services/").content.decode()
    assert "This machine, by a test" in page
    assert "Stop ssh" in page
    assert "Stop web" not in page
    assert "&lt;b&gt;web&lt;/b&gt;" in client.get("/admin/services/web/log/").content.decode()
    assert client.get("/admin/services/none/log/").status_code == 404
    assert client.post("/admin/services/", {"action": "restart", "service": "web"}).status_code == 302
    assert client.post("/admin/services/", {"action": "stop", "service": "web"}).status_code == 422
    assert client.post("/admin/services/", {"action": "stop", "service": "none"}, follow=True).status_code == 200
    answer = _post(client, action="stop", service="ssh")
    assert answer.status_code == 204
    assert _post(client, action="stop", service="none").status_code == 409
    assert _post(client, action="stop", host="none").status_code == 400
    assert manager.acts == [("restart", "web"), ("stop", "ssh")]
    assert client.get("/api/v1/admin/services/").json()["services"][0]["name"] == "ssh"
    assert len(client.get("/api/v1/admin/services/log/?service=ssh&lines=2").json()["lines"]) == 2
    assert AuditEntry.objects.filter(actor=superadmin, action__endswith="_service").count() == 2


@pytest.mark.loopback
def test_the_worker_of_a_host_is_restarted_once(
    superadmin: User, client: Client, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    sent: list[tuple[str, Any, str]] = []
    monkeypatch.setattr("sessions.notify._send_task", lambda *message: sent.append(message))
    killed: list[int] = []
    monkeypatch.setattr("hostworker.tasks.os.kill", lambda pid, number: killed.append(number))
    make_host(name="far", gateway_url="http://127.0.0.1:1")
    client.force_login(superadmin)
    with django_capture_on_commit_callbacks(execute=True):
        assert client.post("/admin/services/", {"action": "restart", "host": "far"}).status_code == 302
        assert client.post("/admin/services/", {"action": "stop", "host": "far"}).status_code == 422
    ((task, (asked_at,), queue),) = sent
    assert (task, queue) == ("hostworker.tasks.restart_worker", "host.far")
    monkeypatch.setattr(tasks, "_began_at", time.monotonic() - 1000)
    tasks.restart_worker(asked_at)
    assert killed == [signal.SIGTERM]
    for moment in (asked_at - 3600, asked_at + 3600, -1.0):
        tasks.restart_worker(moment)
    monkeypatch.setattr(tasks, "_began_at", time.monotonic())  # the next worker gets the message again
    tasks.restart_worker(asked_at)
    assert killed == [signal.SIGTERM]
    found = client.get("/api/v1/admin/services/").json()["hosts"]
    assert [(host["host"], host["gateway_responds"]) for host in found] == [("far", False)]


def _post(client: Client, **body: str) -> Any:
    return client.post("/api/v1/admin/services/", json.dumps(body), content_type="application/json")


@pytest.mark.docker
def test_containers_of_compose_are_shown_and_asked() -> None:
    project = f"gptest-{secrets.token_hex(4)}"
    labels = {PROJECT_LABEL: project, SERVICE_LABEL: "web", ONE_OFF_LABEL: "False"}
    manager = ComposeManager(ENGINE_URL, project)
    assert not manager.is_running()
    with running_container(ensure_tiny_image(), labels=labels) as container:
        first = state_of(manager, "web")
        assert (first.status, first.restarts) == (ServiceStatus.RUNNING, 0)
        manager.act(ServiceAction.RESTART, "web")
        assert state_of(manager, "web").pid not in (None, first.pid)
        until(container.idles)
        manager.act(ServiceAction.STOP, "web")
        assert state_of(manager, "web").status is ServiceStatus.STOPPED
        manager.act(ServiceAction.START, "web")
        assert state_of(manager, "web").status is ServiceStatus.RUNNING
        assert manager.log("web", 5) == []
        with pytest.raises(ServiceControlError, match="no service"):
            manager.act(ServiceAction.STOP, "host")
