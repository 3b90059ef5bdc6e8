"""Sessions' own key pairs: each running session gets one, whichever worker dies when, and its file opens it."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import asyncssh
import pytest
from django.db import connection, connections
from django.test import override_settings
from django.utils import timezone

from hostworker import runner
from hostworker.own_keys import FILE, OwnKeys
from hostworker.runtime.base import EngineUnreachable, Executed
from hostworker.runtime.tests.runtime_worlds import make_spec
from hostworker.tests.meddling import MeddledRuntime
from resources.models import Host
from sessions.lifecycle import Status
from sessions.models import Session
from tests.factories import make_host, run_session, session_in
from tests.wait import until

pytestmark = pytest.mark.django_db(transaction=True)


class Home:
    """What `execute` wrote to the home folders of containers."""

    def __init__(self, exit_code: int = 0) -> None:
        self.written: list[str] = []
        self._exit_code = exit_code

    def __call__(self, command: Sequence[str], environment: Mapping[str, str]) -> Executed:
        assert command[-1] == FILE
        self.written.append(environment["GP_KEY"])
        return Executed(exit_code=self._exit_code, output="read-only file system")

    def public_key(self) -> str:
        """Return the public half of what was written last."""
        key = asyncssh.import_private_key(self.written[-1])
        return " ".join(key.export_public_key().decode().split()[:2])


@pytest.fixture
def runtime() -> MeddledRuntime:
    return MeddledRuntime()


@pytest.fixture
def home(runtime: MeddledRuntime) -> Home:
    home = Home()
    runtime.teach(home)
    return home


@pytest.fixture
def host() -> Host:
    return make_host()


def running(runtime: MeddledRuntime, host: Host) -> Session:
    session = run_session(host=host)
    runtime.create(make_spec("anything", session=session.pk, attempt=session.attempt))
    runtime.start(session.pk, session.attempt)
    return session


def test_a_running_session_gets_one_key_whose_public_half_alone_is_kept(
    runtime: MeddledRuntime, host: Host, home: Home
) -> None:
    session = running(runtime, host)
    keys = OwnKeys(runtime, host)
    keys.look()
    keys.look()
    session.refresh_from_db()
    assert len(home.written) == 1
    assert session.ssh_public_key == home.public_key()
    assert "PRIVATE" not in session.ssh_public_key


def test_only_running_sessions_of_this_host_get_keys(runtime: MeddledRuntime, host: Host, home: Home) -> None:
    running(runtime, make_host())
    for status in set(Status) - {Status.RUNNING}:
        session_in(status, host=host if status not in (Status.PENDING, Status.CANCELLED) else None)
    OwnKeys(runtime, host).look()
    assert not home.written


def test_a_worker_that_dies_after_writing_the_file_leaves_it_to_the_next_which_replaces_it(
    runtime: MeddledRuntime, host: Host, home: Home
) -> None:
    session = running(runtime, host)
    runtime.fail_next("execute", EngineUnreachable("died"), happens_after=True)
    with pytest.raises(EngineUnreachable):
        OwnKeys(runtime, host).look()
    session.refresh_from_db()
    assert session.ssh_public_key == ""
    OwnKeys(runtime, host).look()
    session.refresh_from_db()
    assert session.ssh_public_key == home.public_key()


def test_two_workers_at_once_give_one_key(runtime: MeddledRuntime, host: Host, home: Home) -> None:
    session = running(runtime, host)

    def look() -> None:
        OwnKeys(runtime, host).look()
        connections.close_all()

    def overtake() -> None:
        """Let another worker go as far as it comes while this one is about to write the file."""
        other = pool.submit(look)
        until(lambda: other.done() or is_anybody_waiting_for_a_lock())

    runtime.just_before("execute", overtake)
    with ThreadPoolExecutor() as pool:
        pool.submit(look).result(20)
    session.refresh_from_db()
    assert session.ssh_public_key == home.public_key()
    assert len(home.written) == 1


def is_anybody_waiting_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
        (waiting,) = cursor.fetchone() or (0,)
    return bool(waiting)


def test_a_container_that_takes_no_file_is_asked_once(
    runtime: MeddledRuntime, host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    home = Home(exit_code=1)
    runtime.teach(home)
    running(runtime, host)
    keys = OwnKeys(runtime, host)
    keys.look()
    keys.look()
    assert len(home.written) == 1
    assert "it has no key of its own: its home folder takes no file: read-only file system" in caplog.text


def test_a_session_that_has_just_started_lets_others_start_first(
    runtime: MeddledRuntime, host: Host, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = running(runtime, host)
    monkeypatch.setattr(runner, "_preparing", {("another", 1)})
    OwnKeys(runtime, host).look()
    assert not home.written
    Session.objects.filter(pk=session.pk).update(started_at=timezone.now() - timedelta(seconds=11))
    OwnKeys(runtime, host).look()
    assert home.written, "but not for ever"


@override_settings(COMPUTE_SSH_ADDRESS="")
def test_without_ssh_no_session_gets_a_key(runtime: MeddledRuntime, host: Host, home: Home) -> None:
    running(runtime, host)
    OwnKeys(runtime, host).look()
    assert not home.written
