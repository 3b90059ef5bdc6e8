"""A function of many items as an array, against a live server; its tasks run here, in place of containers."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from django.db import transaction

import gpuplatform_client
from accounts.models import ApiToken, User
from arrays import reconciliation, services
from arrays.models import Array, ArrayTask, TaskState
from arrays.tests.making import finish
from folders.models import Folder
from folders.storage import paths as storage
from gpuplatform_client import ClientError, RemoteError, RemotePythonError
from gpuplatform_client.remote import calls, spread
from resources.models import Host
from sessions.models.session import StaleSessionError
from tests.factories import make_group, make_host, make_image, make_root, make_user
from tests.live import LiveServer
from tests.wait import until

pytestmark = [pytest.mark.loopback, pytest.mark.django_db(transaction=True)]
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@dataclass
class World:
    """A platform whose one host is this test: it runs commands of tasks where their folder is."""

    server: LiveServer
    host: Host
    owner: User
    pool: ThreadPoolExecutor
    ran: list[int] = field(default_factory=list)

    def begin(self, function: Callable[[Any], Any], items: Any, **options: Any) -> Future[list[Any]]:
        """Begin a map in another thread."""
        token = ApiToken.objects.issue(self.owner)[1]
        login = {"url": self.server.url, "token": token, "image": "python", "cpu": 1, "memory": "1g"}
        return self.pool.submit(lambda: gpuplatform_client.map(function, items, **(login | options)))

    def start(self) -> Array:
        """Return the array, with sessions for what may run."""
        until(Array.objects.exists)
        reconciliation.advance_all()
        return Array.objects.get()

    def computed(self, function: Callable[[Any], Any], items: Any, **options: Any) -> list[Any]:
        """Return what a map returns whose tasks are run one after the other; of those that run at once the most."""
        mapping = self.begin(function, items, **options)
        until(lambda: Array.objects.exists() or mapping.done())
        while not mapping.done() and Array.objects.filter(ended_at=None).exists():
            array = self.start()
            self.ran.append(array.pending)
            for task in array.tasks.filter(state=TaskState.PENDING).select_related("session"):
                with suppress(StaleSessionError), transaction.atomic():  # what was cancelled meanwhile a host leaves
                    self.run(task)
            reconciliation.advance_all()
        return mapping.result()

    def run(self, task: ArrayTask, program: str = sys.executable) -> None:
        """Run the command of a task as a host would, but here."""
        session = task.session
        assert session is not None
        folder = Folder.objects.get()
        path = str(next(Path(folder.root.path).rglob(folder.pk)) / "files")
        command = session.command.replace(f"/home/work/{folder.name}", path).replace("python3", program, 1)
        environment = {**session.environment, "PATH": os.environ["PATH"]}
        finish(task, self.host, subprocess.run(["sh", "-c", command], env=environment, check=False).returncode)


@pytest.fixture
def world(
    server: LiveServer, transactional_db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    monkeypatch.setattr(spread, "POLL_SECONDS", 0.05)
    host = make_host(group=make_group(name="lab"))
    make_image(reference="lab/python:3", environment="Python", version="3")
    storage.prepare_root(make_root(host, name="data", path=str(tmp_path), is_default=True))
    with ThreadPoolExecutor(1) as pool:
        yield World(server, host, owner := make_user(), pool)
        for array in Array.objects.live():
            services.cancel(array, actor=owner)
        reconciliation.advance_all()


def inverse(number: int) -> float:
    return 1 / number


def test_items_are_computed_in_order_by_one_array(world: World) -> None:
    assert world.computed(lambda item: item**2, range(10), max_parallel=2, chunksize=2) == [n**2 for n in range(10)]
    array = Array.objects.get()
    assert (array.size, array.succeeded, max(world.ran)) == (5, 5, 2)
    assert not Folder.objects.exists()  # nor is it in the trash
    assert gpuplatform_client.map(inverse, [], image="python") == []


def test_a_failed_item_is_named_with_its_traceback(world: World) -> None:
    results = world.computed(inverse, [4, 0, 1], return_exceptions=True)
    assert (results[0], results[2]) == (0.25, 1)
    error = results[1]
    assert isinstance(error, ZeroDivisionError)
    assert error.__notes__ == ["This is of item 1: 0"]
    assert "in inverse" in str(error.__cause__)
    assert (Array.objects.get().succeeded, Array.objects.get().failed) == (2, 1)
    Array.objects.all().delete()
    with pytest.raises(ZeroDivisionError):
        world.computed(inverse, [4, 0, 1])


def test_a_task_that_dies_has_no_result(world: World) -> None:
    def ending(code: int) -> int:
        return os._exit(code) if code else code

    died, lived = world.computed(ending, [7, 0], return_exceptions=True)
    assert (str(died), lived) == ("Task 0 ended before a result: Exit code 7.", 0)
    assert isinstance(died, RemoteError)


def test_a_task_that_dies_is_started_again(world: World, tmp_path: Path) -> None:
    def once(path: Path) -> str:
        if not path.exists():
            path.touch()
            os._exit(1)
        return "again"

    mapping = world.begin(once, [tmp_path / "mark"], retries=1)
    world.run(world.start().tasks.select_related("session").get())
    reconciliation.advance_all()
    ArrayTask.objects.update(not_before=None)
    world.run(world.start().tasks.select_related("session").get())
    reconciliation.advance_all()
    assert mapping.result() == ["again"]


def test_another_python_is_told_before_anything_is_unpickled(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spread, "OWN", "3.99")
    with pytest.raises(RemotePythonError, match=r"Here is Python 3\.99, in the session Python 3\.11"):
        world.computed(inverse, [1, 2, 3, 4], max_parallel=1, chunksize=1)
    assert not Folder.objects.exists()


def test_a_session_without_python_is_told(world: World) -> None:
    mapping = world.begin(inverse, [1])
    world.run(world.start().tasks.select_related("session").get(), "no-such-python")
    reconciliation.advance_all()
    with pytest.raises(RemotePythonError, match="no Python"):
        mapping.result()


def test_sizes_are_bounded_with_words(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MAX_BYTES", 100_000)
    with pytest.raises(ClientError, match="put data into a folder"):
        world.begin(len, [bytes(100_000)]).result()
    assert not Array.objects.exists()
    with pytest.raises(ValueError, match="results of task 0"):
        world.computed(bytes, [100_000])
    with pytest.raises(TypeError, match="no command, keep"):
        gpuplatform_client.map(inverse, [1], image="python", keep=True, command="x")


@pytest.mark.parametrize("size", [0, -5])
def test_a_chunk_has_one_item_at_least(size: int) -> None:
    with pytest.raises(ValueError, match="one at least"):
        gpuplatform_client.map(inverse, [1], image="python", chunksize=size, url="http://127.0.0.1:1", token="t")


def test_a_start_that_takes_too_long_leaves_nothing(world: World) -> None:
    with pytest.raises(TimeoutError, match="first task took more than 0 s"):
        world.begin(inverse, [1], start_timeout=0.0).result()
    assert (Array.objects.get().state, Folder.objects.exists()) == ("CANCELLED", False)


def test_a_refused_array_leaves_no_folder(world: World) -> None:
    with pytest.raises(ClientError, match="cpu"):
        world.begin(inverse, [1], cpu=100_000).result()
    assert not Folder.objects.exists()


def test_an_interrupt_cancels_the_array(world: World) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    done = threading.Event()

    def interrupt() -> None:
        until(Array.objects.exists)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        done.set()

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    token = ApiToken.objects.issue(world.owner)[1]
    try:
        with pytest.raises(KeyboardInterrupt):
            gpuplatform_client.map(inverse, [1, 2], image="python", url=world.server.url, token=token)
    finally:
        interrupting.join()
        signal.signal(signal.SIGINT, before)
    assert (Array.objects.get().state, Folder.objects.exists()) == ("CANCELLED", False)


def test_a_loop_has_the_same_map(world: World) -> None:
    def within(function: Callable[[Any], Any], items: Any, **options: Any) -> list[Any]:
        return asyncio.run(gpuplatform_client.async_map(function, items, **options))

    token = ApiToken.objects.issue(world.owner)[1]
    mapping = world.pool.submit(within, abs, [-1], image="python", url=world.server.url, token=token)
    world.run(world.start().tasks.select_related("session").get())
    reconciliation.advance_all()
    assert mapping.result() == [1]
