"""Sessions that exchange directories for symbolic links while the platform is on its way through them."""

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from folders.files.errors import FilesError
from folders.files.folder_files import FolderFiles
from folders.files.tests.hostile import SECRET, World, content, deep
from folders.files.walk import MAX_OPEN_LEVELS, REMOVAL_ROUNDS, Removal, TreeWalk, in_rounds
from tests.wait import until

NOW: Final = datetime(2030, 1, 1, tzinfo=UTC)
EXCHANGE: Final = 2  # RENAME_EXCHANGE
ROUNDS: Final = 300  # with each outcome seen at least once


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no disk: thousands of files are written here."""
    monkeypatch.setattr(os, "fsync", lambda opened: None)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World.create(tmp_path)
    yield world
    world.remove()


@contextmanager
def exchanging(one: Path, two: Path) -> Iterator[None]:
    """Exchange two entries again and again during the block, in another thread."""
    libc, stopped = ctypes.CDLL(None), threading.Event()

    def run() -> None:
        while not stopped.is_set():
            libc.renameat2(-100, os.fsencode(one), -100, os.fsencode(two), EXCHANGE)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def read(files: FolderFiles, number: int) -> str:
    with open(files.open_file("d/secret")) as file:
        return file.read()


def make(files: FolderFiles, number: int) -> str:
    return files.mkdir(f"d/new-{number}/x", parents=True).name


def save(files: FolderFiles, number: int) -> str:
    return files.write_text(f"d/new-{number}", "mine", if_match=None).text


def save_over(files: FolderFiles, number: int) -> str:
    return files.write_text("d/secret", "mine", if_match="*").text


def move(files: FolderFiles, number: int) -> str:
    files.write_text(f"new-{number}", "mine", if_match=None)
    return files.move(f"new-{number}", f"d/new-{number}").name


def trash_and_restore(files: FolderFiles, number: int) -> str:
    files.write_text(f"new-{number}", "mine", if_match=None)
    return files.trash.restore(files.trash.put(f"new-{number}", NOW).id, f"d/new-{number}").name


def walk(files: FolderFiles, number: int) -> str:
    return "".join(read_entry(entry.open()) for entry in files.walk("d") if entry.name == "secret")


def read_entry(opened: int) -> str:
    with open(opened) as file:
        return file.read()


@pytest.mark.parametrize("operation", [read, make, save, save_over, move, trash_and_restore, walk])
def test_exchanging_a_directory_for_a_link_gains_nothing(
    world: World, operation: Callable[[FolderFiles, int], str]
) -> None:
    content("d/secret")(world)
    (world.files / "link").symlink_to(world.outside)
    before = world.fingerprint()
    outcomes: list[bool] = []

    def attempt() -> bool:
        for _ in range(ROUNDS):
            outcomes.append(False)
            with suppress(FilesError):
                assert SECRET not in operation(files, len(outcomes))
                outcomes[-1] = True
        return len(set(outcomes)) == 2

    with world.open() as files, exchanging(world.files / "d", world.files / "link"):
        until(attempt)
    assert world.fingerprint() == before


def test_exchanging_a_file_for_a_link_gains_nothing(world: World) -> None:
    content("own")(world)
    (world.files / "link").symlink_to(world.outside / "secret")
    before, outcomes = world.fingerprint(), set()
    with world.open() as files, exchanging(world.files / "own", world.files / "link"):
        for _ in range(ROUNDS * 10):
            with suppress(FilesError):
                outcomes.add(files.read_text("own").text)
    assert outcomes <= {"mine"}
    assert world.fingerprint() == before


class InterruptedRemoval(Removal):
    """A removal in which a session acts after the kind of an entry was looked up, and before it is opened."""

    def __init__(self, area: int, act: Callable[[str], None]) -> None:
        super().__init__(area)
        self._act = act

    def _unlink(self, parent: int, name: str) -> bool:
        done = super()._unlink(parent, name)
        self._act(name)
        return done


def put_link(world: World, path: Path) -> None:
    path.rename(world.files / "moved")
    path.symlink_to(world.outside)


def put_file(world: World, path: Path) -> None:
    path.rename(world.files / "moved")
    path.touch()


def take_away(world: World, path: Path) -> None:
    path.rename(world.files / "moved")


@pytest.mark.parametrize("act", [put_link, put_file, take_away])
@pytest.mark.parametrize("path", ["d", "d/e"])
def test_deleting_goes_on_whatever_is_put_in_place(world: World, path: str, act: Callable[[World, Path], None]) -> None:
    content("d/e/own")(world)
    before, acts = world.fingerprint(), [act]

    def interrupt(name: str) -> None:
        if path.endswith(name) and acts:
            acts.pop()(world, world.files / path)

    area = os.open(world.files, os.O_PATH | os.O_DIRECTORY)
    try:
        assert InterruptedRemoval(area, interrupt).run(1000)
    finally:
        os.close(area)
    assert not acts
    assert os.listdir(world.files) == []
    assert world.fingerprint() == before


def test_deleting_meets_a_directory_where_a_file_was(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    content("own")(world)
    unlink, left = os.unlink, ["own"]

    def exchange_first(path: str, *, dir_fd: int) -> None:
        if path in left:
            left.remove(path)
            unlink(path, dir_fd=dir_fd)
            os.mkdir(path, dir_fd=dir_fd)
        unlink(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", exchange_first)
    area = os.open(world.files, os.O_PATH | os.O_DIRECTORY)
    try:
        assert Removal(area).run(1000)
    finally:
        os.close(area)
    assert os.listdir(world.files) == []


def test_a_directory_that_is_filled_again_ends_a_removal() -> None:
    calls: list[str] = []

    def remove() -> bool:
        calls.append("remove")
        return False

    assert not in_rounds(remove, lambda: calls.append("checkpoint"))
    assert calls == ["checkpoint", "remove"] * REMOVAL_ROUNDS
    assert in_rounds(lambda: True)


def test_a_walk_follows_no_link_put_in_place(world: World) -> None:
    content("a/d/own")(world)
    seen = []
    with world.open() as files:
        for entry in files.walk():
            seen.append(entry.name)
            if entry.name == "d":
                (world.files / "a" / "d").rename(world.files / "a" / "moved")
                (world.files / "a" / "d").symlink_to(world.outside)
    assert "secret" not in seen


def test_a_directory_that_moves_away_ends_its_walk(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    levels, moved = MAX_OPEN_LEVELS + 20, 10
    deep(levels)(world)
    above = world.files / "/".join(["d"] * (moved - 1))
    for number in range(20):  # some are still to be visited when the walk comes back from "d"
        (above / f"p{number}").mkdir()
        (world.outside / f"p{number}").mkdir()
        (world.outside / f"p{number}" / "stolen").touch()
    monkeypatch.chdir(world.outside)  # where a name without a directory would be looked for
    start = os.open(world.files / "d", os.O_PATH | os.O_DIRECTORY)
    seen = []
    try:
        for entry in TreeWalk(start):
            seen.append(entry.name)
            if seen.count("d") == levels - 1 and entry.name == "d":  # at the bottom, with the upper levels closed
                (above / "d").rename(world.outside / "taken")
    finally:
        os.close(start)
    assert seen.count("d") == levels - 1
    assert "stolen" not in seen


def test_a_walk_holds_few_descriptors_at_any_depth(world: World) -> None:
    deep(1200)(world)
    before = len(os.listdir("/proc/self/fd"))
    with world.open() as files:
        most = max(len(os.listdir("/proc/self/fd")) for _ in files.walk())
        assert files.usage().files == 1200
        files.trash.put("d", NOW)
        files.trash.empty()
        assert not files.trash.purge(100)
        assert files.trash.purge()
        assert files.usage().files == 0
        assert files.trash.freed.files == 1200
    assert most - before < MAX_OPEN_LEVELS + 10


def test_a_directory_left_half_deleted_is_finished(world: World) -> None:
    for number in range(20):
        content(f"a/{number}/own")(world)
    with world.open() as files:
        files.trash.put("a", NOW)
        files.trash.empty()
        calls = 1
        while not files.trash.purge(7):
            calls += 1
        assert 5 < calls < 20
        assert files.trash.purge()


def test_removal_ends_where_it_was_told_to(world: World) -> None:
    for number in range(15):
        content(f"d{number % 3}/{number}")(world)
    before = len(os.listdir("/proc/self/fd"))
    area = os.open(world.files, os.O_PATH | os.O_DIRECTORY)
    try:
        for left in (15, 12):
            removal = Removal(area)
            assert not removal.run(3)
            assert len(list(world.files.rglob("*"))) == left
            assert removal.freed.files == 3
        assert Removal(area).run(1000)
    finally:
        os.close(area)
    assert len(os.listdir("/proc/self/fd")) == before


def test_walk_returns_to_directories_above_that_it_had_closed(world: World) -> None:
    levels, here = MAX_OPEN_LEVELS + 8, world.files
    for _ in range(levels):
        here = here / "d"
        for name in ("d", "e", "f"):
            (here / name / "g").mkdir(parents=True, exist_ok=True)
    expected = sum(1 for _ in world.files.rglob("*"))
    start = os.open(world.files, os.O_PATH | os.O_DIRECTORY)
    try:
        assert sum(1 for _ in TreeWalk(start)) == expected
    finally:
        os.close(start)


def test_a_walk_leaves_out_what_goes_before_its_turn(world: World) -> None:
    for name in "abc":
        content(name)(world)
    start = os.open(world.files, os.O_PATH | os.O_DIRECTORY)
    try:
        seen = []
        for entry in TreeWalk(start):  # the names were read together
            seen.append(entry.name)
            for path in world.files.iterdir():
                path.unlink()
        assert len(seen) == 1
    finally:
        os.close(start)
