"""Functions in a session, against a live server and a real container."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from django.conf import settings
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from accounts.models import ApiToken
from gpuplatform_client import AsyncSession, ClientError, RemoteError, RemotePythonError, Session
from gpuplatform_client.remote import calls, sessions
from sessions.lifecycle import Reason, Status
from sessions.models import Session as SessionRow
from tests.containers import Container, lent_container
from tests.factories import make_host, make_image, make_user, run_session
from tests.fgpu_sessions import PYTHON_IMAGE, ensure_python_image
from tests.live import LiveServer
from tests.wait import until

pytestmark = [pytest.mark.docker, pytest.mark.django_db(transaction=True)]

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # as what a program's main module has


@dataclass
class Point:
    """A class that the session does not have."""

    x: int


class UnpicklableError(Exception):
    """An exception that no process but its own can have."""

    def __reduce__(self) -> Any:
        raise TypeError("never")


def endless(item: int = 0) -> None:
    """Go on until the process is ended."""
    threading.Event().wait()


@dataclass(frozen=True)
class World:
    """A session that runs in a container, and how its owner reaches it."""

    server: LiveServer
    container: Container
    row: SessionRow
    token: str

    @property
    def login(self) -> dict[str, Any]:
        """The options that name platform and account."""
        return {"url": self.server.url, "token": self.token}

    def attached(self, **options: Any) -> Session:
        """Return the session as the client has it."""
        return Session.attach(self.row.pk, **self.login, **options)

    def is_computing(self) -> bool:
        """Return whether a function runs in the container."""
        return any("python3 -uc" in line for line in self.container.processes())

    def run_next(self) -> SessionRow:
        """Have the container be that of the session that waits, once there is one."""
        until(SessionRow.objects.filter(status=Status.PENDING).exists)
        waiting = SessionRow.objects.get(status=Status.PENDING)
        run_session(waiting, host=self.row.host)
        SessionRow.objects.filter(pk=waiting.pk).update(container_id=self.container.id)
        return waiting


@pytest.fixture
def world(server: LiveServer, transactional_db: None) -> Iterator[World]:
    ensure_python_image()
    with lent_container(PYTHON_IMAGE) as container:
        host = make_host(name=settings.COMPUTE_HOST_NAME)
        make_image(reference=PYTHON_IMAGE, environment="Python", version="3.11")
        row = run_session(host=host, owner=make_user(), name="mine")
        SessionRow.objects.filter(pk=row.pk).update(container_id=container.id)
        yield World(server, container, row, ApiToken.objects.issue(row.owner)[1])


def test_a_function_has_arguments_output_and_a_result(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    factor = 3

    def scaled(point: Point, *, by: int = factor) -> Point:
        sys.stdout.write(f"in {os.getcwd()}\n")
        sys.stderr.write("problem 한글\n")
        return Point(point.x * by)

    with world.attached() as session:
        assert session.run(scaled, Point(7)) == Point(21)
        assert session.run(scaled, Point(7), by=2) == Point(14)
        assert session.run(len, b"x" * 3_000_000) == 3_000_000
        assert len(session.run(bytes, 3_000_000)) == 3_000_000
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("in /home/work\n" * 2, "problem 한글\n" * 2)
    assert world.container.run("ls /tmp") == ""
    assert SessionRow.objects.get(pk=world.row.pk).status == Status.RUNNING


def test_what_a_function_raises_has_the_remote_traceback(world: World) -> None:
    def failing(kind: type[Exception]) -> None:
        raise kind("of the session")

    def ending(code: int) -> None:
        os._exit(code)

    with world.attached() as session:
        with pytest.raises(KeyError, match="of the session") as raised:
            session.run(failing, KeyError)
        assert "in failing" in str(raised.value.__cause__)
        with pytest.raises(RemoteError, match="UnpicklableError: of the session") as unread:
            session.run(failing, UnpicklableError)
        assert "in failing" in str(unread.value.__cause__)
        with pytest.raises(RemoteError, match="exit code 137, as of lack of memory"):
            session.run(ending, 137)
        with pytest.raises(TypeError, match="cannot pickle"):
            session.run(lambda: (each for each in "a generator"))


def test_what_cannot_be_sent_is_refused_before(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with world.attached() as session:
        monkeypatch.setattr(calls, "MAX_BYTES", 100_000)
        with pytest.raises(ClientError, match="put data into a folder"):
            session.run(len, bytes(100_000))
        with pytest.raises(ModuleNotFoundError) as missing:
            session.run(make_host)
        assert "register_pickle_by_value" in missing.value.__notes__[0]
    monkeypatch.setattr(sessions, "OWN", "3.99")
    with world.attached() as other, pytest.raises(RemotePythonError, match=r"3\.99, in the session Python 3\.11"):
        other.run(len, "")


@pytest.fixture
def heeds_interrupts() -> Iterator[None]:
    """Have SIGINT interrupt the main thread: processes of pytest-xdist ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_items_are_computed_in_order_by_processes(world: World) -> None:
    def checked(item: int) -> tuple[int, int]:
        if item == 3:
            raise ValueError(item)
        return item, os.getpid()

    with world.attached() as session:
        results = session.map(checked, range(8), parallel=2, return_exceptions=True)
        assert [each if isinstance(each, Exception) else each[0] for each in results][:3] == [0, 1, 2]
        assert isinstance(results[3], ValueError)
        assert len({each[1] for each in results if not isinstance(each, Exception)}) <= 2
        with pytest.raises(ValueError, match="3"):
            session.map(checked, range(8))
        assert session.map(checked, []) == []
        broken = session.map(lambda code: os._exit(code), [1], return_exceptions=True)
        assert "terminated abruptly" in str(broken[0])


@pytest.mark.usefixtures("heeds_interrupts")
def test_a_call_ends_with_its_time_or_an_interrupt(world: World) -> None:
    with world.attached(call_timeout=2.0) as session, pytest.raises(TimeoutError, match="The call took more than 2 s"):
        session.run(endless)
    until(lambda: not world.is_computing())
    interrupting = threading.Thread(target=_interrupt_once, args=(world.is_computing,))
    interrupting.start()
    with world.attached() as session, pytest.raises(KeyboardInterrupt):
        session.run(endless)
    interrupting.join()
    until(lambda: not world.is_computing())


def test_a_session_that_ends_meanwhile_is_told(world: World) -> None:
    with world.attached() as session, ThreadPoolExecutor(1) as thread:
        running = thread.submit(session.run, endless)
        until(world.is_computing)
        SessionRow.objects.get(pk=world.row.pk).move_to(Status.TERMINATING, Reason.USER_REQUEST)
        with pytest.raises(ClientError, match="ended"):
            running.result()


def test_a_launched_session_ends_with_its_block(world: World) -> None:
    with ThreadPoolExecutor(1) as thread:
        launching = thread.submit(Session.launch, "python", cpu=1, fgpu="0", **world.login)
        row = world.run_next()
        with pytest.raises(ZeroDivisionError), launching.result() as session:
            session.run(lambda: 1 // 0)
        assert SessionRow.objects.get(pk=row.pk).status == Status.TERMINATING
        session.end()
        kept = thread.submit(Session.launch, "python", keep=True, **world.login)
        row = world.run_next()
        with kept.result() as session:
            assert session.id == row.pk
        assert SessionRow.objects.get(pk=row.pk).status == Status.RUNNING


@pytest.mark.usefixtures("heeds_interrupts")
def test_a_launch_that_is_given_up_leaves_nothing(world: World) -> None:
    with pytest.raises(TimeoutError, match="start of the session"):
        Session.launch("python", start_timeout=0.0, **world.login)
    interrupting = threading.Thread(target=_interrupt_once, args=(SessionRow.objects.filter(status="PENDING").exists,))
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        Session.launch("python", **world.login)
    interrupting.join()
    assert [*SessionRow.objects.exclude(pk=world.row.pk).values_list("status", flat=True)] == ["CANCELLED"] * 2
    with pytest.raises(TypeError, match="no command, gpu"):
        Session.launch("python", command="true", gpu=1, **world.login)


def test_functions_run_beside_each_other_in_a_loop(world: World) -> None:
    async def both() -> list[int]:
        async with AsyncSession.attach(world.row.pk, **world.login) as session:
            assert await session.map(abs, [-1, 2]) == [1, 2]
            return [*await asyncio.gather(session.run(abs, -3), session.run(abs, -4))]

    assert asyncio.run(both()) == [3, 4]


def test_cells_run_in_the_session_of_the_notebook(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in {"URL": world.server.url, "TOKEN": world.token}.items():
        monkeypatch.setenv(f"GPUPLATFORM_{name}", value)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    shell = InteractiveShell(config=Config(HistoryManager={"enabled": False}))

    def run(cell: str) -> str:
        capsys.readouterr()
        shell.run_cell(cell).raise_error()
        return capsys.readouterr().out

    with ThreadPoolExecutor(1) as thread:
        run("%load_ext gpuplatform_client.magic\nnumbers = [1, 2]")
        first = thread.submit(
            run, "%%gpu 0 --in numbers --out total, where\nimport os\ntotal, where = sum(numbers), os.getcwd()\ntotal"
        )
        row = world.run_next()
        assert first.result() == "3\n"
    assert run("print(total, where)") == "3 /home/work\n"
    assert run("%%gpu\nprint(6 * 7)") == "42\n"
    with pytest.raises(ZeroDivisionError) as raised:
        run("%%gpu\n1 / 0")
    assert "    1 / 0" in str(raised.value.__cause__)
    for wrong in ("%%gpu 0.5\n1", "%%gpu --in nothing\n1", "%gpu start"):
        with pytest.raises(UsageError):
            run(wrong)
    assert run(f"%%gpu --session {world.row.pk}\nprint(1)") == "1\n"
    run("%gpu stop")
    assert [SessionRow.objects.get(pk=each.pk).status for each in (row, world.row)] == ["TERMINATING", "RUNNING"]
    with ThreadPoolExecutor(1) as thread:
        again = thread.submit(run, "%%gpu\nprint(2)")
        row = world.run_next()
        assert again.result() == "2\n"
    shell.magics_manager.registry["GpuMagics"]._end_at_exit()
    assert SessionRow.objects.get(pk=row.pk).status == "TERMINATING"


def _interrupt_once(is_time: Callable[[], object]) -> None:
    """Interrupt the main thread, as Ctrl-C does."""
    until(is_time)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
