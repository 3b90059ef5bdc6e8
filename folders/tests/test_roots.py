"""Storage roots: marker files, what hosts find, and a file system that does not answer."""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from pytest_django import DjangoAssertNumQueries

from folders.files.descriptors import CONTAINER_USER
from folders.files.roots import MARKER, NotEmptyError, RootProbe, RootState, examine, owner_at, write_marker
from folders.models import HostRoot, StorageRoot
from folders.storage import roots
from resources.models import HostStatus
from tests.factories import make_host
from tests.queues import take_all
from tests.wait import SECONDS, until

KEY = "6f8a"


def make_root(path: Path, name: str = "local", **fields: object) -> StorageRoot:
    """Return a root whose directory has its marker."""
    path.mkdir(exist_ok=True)
    root = StorageRoot.objects.create(name=name, path=str(path), **fields)
    roots.mark(root)
    return root


def test_an_empty_directory_becomes_a_root(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    write_marker(tmp_path, KEY)
    write_marker(tmp_path, KEY)
    state = examine(tmp_path, KEY)
    assert state.problem == ""
    space = os.statvfs(tmp_path)
    assert (state.total_bytes, state.device) == (space.f_blocks * space.f_frsize, tmp_path.stat().st_dev)
    assert state.free_bytes is not None
    assert 2**20 < state.free_bytes <= space.f_blocks * space.f_frsize


def test_somebody_elses_directory_is_not_marked(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(NotEmptyError, match=r"thesis\.txt"):
        write_marker(tmp_path, KEY)
    assert os.listdir(tmp_path) == ["thesis.txt"]
    (tmp_path / "thesis.txt").rename(tmp_path / MARKER)
    with pytest.raises(NotEmptyError):
        write_marker(tmp_path, KEY)
    with pytest.raises(FileNotFoundError):
        write_marker(tmp_path / "absent", KEY)


def test_a_process_that_dies_leaves_no_half_marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdopen", die)
        with pytest.raises(KeyboardInterrupt):
            write_marker(tmp_path, KEY)
    write_marker(tmp_path, KEY)
    assert examine(tmp_path, KEY).problem == ""


def test_a_root_says_why_it_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_marker(tmp_path, KEY)
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *_, **__: False)
        assert "cannot be written to by the platform's user" in examine(tmp_path, KEY).problem
    with monkeypatch.context() as patch:
        patch.setattr(os, "fstatvfs", fail_with(errno.EIO))
        assert examine(tmp_path, KEY).problem == f"{tmp_path} cannot be read: Input/output error."
        patch.setattr(os, "open", fail_with(errno.EACCES))
        assert examine(tmp_path, KEY).problem == f"{tmp_path} cannot be opened: Permission denied."
    (tmp_path / "file").touch()
    assert examine(tmp_path / "file", KEY).problem == f"The directory {tmp_path / 'file'} does not exist."
    assert owner_at(tmp_path, KEY) == CONTAINER_USER
    with pytest.raises(FileNotFoundError):
        owner_at(tmp_path, "other")


def fail_with(number: int) -> Callable[..., None]:
    def fail(*arguments: object, **options: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_examining_leaves_no_descriptor_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    write_marker(tmp_path, KEY)
    for key in (KEY, "other"):
        examine(tmp_path, key)
        with suppress(FileNotFoundError):
            owner_at(tmp_path, key)
        with suppress(NotEmptyError):
            write_marker(tmp_path, key)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_look_that_fails_is_told_and_repeated(tmp_path: Path) -> None:
    failures = [ValueError("no")]

    def look(path: Path, key: str) -> RootState:
        for failure in failures:
            failures.remove(failure)
            raise failure
        return RootState(free_bytes=1)

    probe = RootProbe(tmp_path, KEY, look)
    assert probe.state(SECONDS).problem == f"{tmp_path} could not be examined: no."
    assert probe.state(SECONDS).free_bytes == 1


def replace_marker(path: Path, content: str) -> None:
    (path / MARKER).unlink()
    (path / MARKER).write_text(content)


def link_marker(path: Path) -> None:
    (path / MARKER).unlink()
    (path / MARKER).symlink_to("/etc/hostname")


def pipe_marker(path: Path) -> None:
    (path / MARKER).unlink()
    os.mkfifo(path / MARKER)


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda path: (path / MARKER).unlink(), "has no marker file"),
        (link_marker, "has no marker file"),
        (pipe_marker, "is another storage root"),
        (lambda path: replace_marker(path, "other\n"), "is another storage root"),
        (lambda path: path.rename(path.with_name("away")), "does not exist"),
    ],
)
def test_a_root_without_its_marker_is_missing(spoil: Callable[[Path], object], problem: str, tmp_path: Path) -> None:
    path = tmp_path / "root"
    path.mkdir()
    write_marker(path, KEY)
    spoil(path)
    assert problem in examine(path, KEY).problem


class Hanging:
    """A file system that answers once told to."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.asked = 0

    def __call__(self, path: Path, key: str) -> RootState:
        """Wait."""
        self.asked += 1
        self.answers.wait()
        return RootState(free_bytes=1)


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    """A file system that hangs until the test is over."""
    system = Hanging()
    yield system
    system.answers.set()


def test_a_hung_file_system_delays_nobody_twice(hanging: Hanging, tmp_path: Path) -> None:
    probe = RootProbe(tmp_path, KEY, hanging)
    for _ in range(50):  # far longer than any test if each waited for itself
        assert "does not answer" in probe.state(1).problem
    assert hanging.asked == 1
    assert [thread.daemon for thread in threading.enumerate() if thread.name == f"root {tmp_path}"] == [True]
    hanging.answers.set()
    assert until(lambda: probe.state(1).free_bytes) == 1


def test_a_probe_recovers_from_a_lack_of_threads(
    hanging: Hanging, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    hanging.answers.set()
    probe = RootProbe(tmp_path, KEY, hanging)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError):
            probe.state(1)
    assert probe.state(SECONDS).problem == ""


def test_a_fresh_state_is_not_looked_up_again(hanging: Hanging, tmp_path: Path) -> None:
    hanging.answers.set()
    probe = RootProbe(tmp_path, KEY, hanging)
    for _ in range(3):
        assert probe.state(SECONDS, max_age_seconds=1000).problem == ""
    assert hanging.asked == 1
    probe.state(SECONDS)
    assert hanging.asked == 2


@pytest.mark.django_db
def test_a_host_records_its_roots(tmp_path: Path, django_assert_max_num_queries: DjangoAssertNumQueries) -> None:
    host, kept = make_host(), make_root(tmp_path / "kept")
    lost = make_root(tmp_path / "lost", "lost", is_shared=True)
    with django_assert_max_num_queries(6):
        roots.check(host)
    assert HostRoot.objects.filter(host=host, is_present=True, free_bytes__gt=0).count() == 2
    (tmp_path / "lost" / MARKER).unlink()
    roots._probes.clear()
    roots.check(host)
    row = HostRoot.objects.get(root=lost)
    assert not row.is_present
    assert "has no marker file" in row.problem
    assert roots.hosts_with([kept, lost]) == {kept.pk: [host.name], lost.pk: []}
    assert roots.problem_here(kept) == ""
    assert "has no marker file" in roots.problem_here(lost)


@pytest.mark.django_db(transaction=True)
def test_a_root_that_appears_requests_a_pass(tmp_path: Path) -> None:
    host = make_host()
    make_root(tmp_path / "root")
    take_all("scheduler")
    roots.check(host)
    assert take_all("scheduler") == [("scheduler.tasks.run_pass", ())]
    roots.check(host)
    assert take_all("scheduler") == []


@pytest.mark.django_db
def test_missing_shared_roots_are_warned_of(tmp_path: Path) -> None:
    shared = make_root(tmp_path / "shared", "shared", is_shared=True)
    local = make_root(tmp_path / "local")
    one, two, gone = make_host(name="one"), make_host(name="two"), make_host(name="gone", status=HostStatus.LOST)
    for root in (shared, local):
        HostRoot.objects.create(host=one, root=root, is_present=True)
        HostRoot.objects.create(host=two, root=root, problem="It is away.")
        HostRoot.objects.create(host=gone, root=root, problem="It is away.")
    assert roots.warnings() == ["Storage root shared is missing on two: It is away."]
    HostRoot.objects.filter(host=one).update(is_present=False, problem="It is away.")
    assert roots.warnings() == [f"Storage root {name} is on no host: It is away." for name in ("local", "shared")]


@pytest.mark.django_db
def test_a_root_elsewhere_names_its_hosts(tmp_path: Path) -> None:
    root = StorageRoot.objects.create(name="far", path=str(tmp_path / "absent"))
    assert roots.where_text(root).startswith("No host has the storage root far at present.")
    HostRoot.objects.create(host=make_host(name="gpu1"), root=root, is_present=True)
    HostRoot.objects.create(host=make_host(name="gpu2"), root=root, is_present=True)
    assert "Sessions on gpu1 and gpu2 can use folders of the storage root far." in roots.where_text(root)
    (tmp_path / "near").mkdir()
    assert roots.where_text(make_root(tmp_path / "near", "near")) == ""


@pytest.mark.django_db
def test_the_command_adds_and_lists_roots(tmp_path: Path) -> None:
    call_command("storageroots", "add", "data", str(tmp_path), "--default", "--shared", stdout=StringIO())
    root = StorageRoot.objects.get()
    assert (root.is_default, root.is_shared, examine(tmp_path, str(root.key)).problem) == (True, True, "")
    roots.check(make_host(name="gpu1"))
    output = StringIO()
    call_command("storageroots", stdout=output)
    assert "shared, default" in output.getvalue()
    assert "gpu1: " in output.getvalue()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for words in (
        ("add", "full", str(tmp_path / "full")),
        ("add", "x", "relative"),
        ("add", "data", "/y"),
        ("mark", "no"),
    ):
        with pytest.raises(CommandError):
            call_command("storageroots", *words)
    assert StorageRoot.objects.count() == 1
