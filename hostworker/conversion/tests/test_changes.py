"""Which changes are saved, and in which pieces they are read."""

import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, cast

import pytest

from hostworker.conversion import layer
from hostworker.conversion.base import Change, ChangeKind, ImageEngine
from hostworker.conversion.changes import How, Piece, plan
from hostworker.conversion.report import Survey

A, C, D = ChangeKind.ADDED, ChangeKind.MODIFIED, ChangeKind.DELETED


def pieces(
    *changes: tuple[str, ChangeKind], mounts: tuple[str, ...] = (), present: tuple[str, ...] = ()
) -> list[Piece]:
    return list(plan([Change(*change) for change in changes], mounts, lambda path: path in present).pieces)


def test_what_was_added_is_read_once_with_all_below() -> None:
    found = pieces(("/opt", C), ("/opt/a", A), ("/opt/a/b", A), ("/opt/a-b", A))
    assert found == [Piece("/opt", How.ENTRY), Piece("/opt/a", How.TREE), Piece("/opt/a-b", How.TREE)]


def test_directories_above_come_first_even_if_not_listed() -> None:
    found = pieces(("/usr/lib/x/file", C))
    assert [piece.path for piece in found] == ["/usr", "/usr/lib", "/usr/lib/x", "/usr/lib/x/file"]


def test_a_deleted_path_is_marked_and_a_remade_one_replaced() -> None:
    found = pieces(("/etc", C), ("/etc/gone", D), ("/etc/remade", D), ("/etc/remade/x", A), present=("/etc/remade",))
    assert found == [Piece("/etc", How.ENTRY), Piece("/etc/gone", How.DELETED), Piece("/etc/remade", How.REPLACED)]


@pytest.mark.parametrize("path", ["/home/work/x", "/home/work", "/root/.ssh/id_rsa", "/tmp/x", "/run/x", "/proc/1"])
def test_homes_and_scratch_are_not_saved(path: str) -> None:
    assert pieces((path, A)) == []


@pytest.mark.parametrize("path", ["/home/worker", "/rooted", "/opt/tmp", "/home/other/x"])
def test_paths_that_only_begin_alike_are_saved(path: str) -> None:
    assert pieces((path, A))[-1] == Piece(path, How.TREE)


def test_mount_points_and_their_parents_are_not_saved() -> None:
    mounts = ("/etc/ld.so.preload", "/data/sets/mnist")
    found = pieces(("/etc/ld.so.preload", A), ("/data", A), ("/data/sets", A), ("/data/sets/mnist", A), mounts=mounts)
    assert found == []


def test_a_directory_that_holds_a_mount_is_read_in_parts() -> None:
    found = pieces(("/data", A), ("/data/mnist", A), ("/data/own", A), mounts=("/data/mnist",))
    assert found == [Piece("/data", How.ENTRY), Piece("/data/own", How.TREE)]


def test_names_that_layers_use_for_deletions_are_left_out() -> None:
    planned = plan([Change("/opt/.wh.x", A)], (), lambda path: False)
    assert (planned.pieces, planned.left_out) == ((), {"/opt/.wh.x": 1})


class Archives:
    """An engine whose container has one archive, whatever is asked for."""

    def __init__(self, *entries: tarfile.TarInfo) -> None:
        self._content = io.BytesIO()
        with tarfile.open(fileobj=self._content, mode="w") as archive:
            for entry in entries:
                archive.addfile(entry, io.BytesIO(b"x" * entry.size))

    @contextmanager
    def read(self, container_id: str, path: str) -> Iterator[IO[bytes]]:
        self._content.seek(0)
        yield self._content


def entry(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.size, made.linkname = kind, size, link
    return made


def written(engine: Archives, path: str, kind: ChangeKind, **options: tuple[str, ...]) -> dict[str, str]:
    """Return the names of the layer that holds this one change, each with where it links to."""
    planned = plan([Change(path, kind)], options.get("mounts", ()), lambda path: path in options.get("present", ()))
    sink = io.BytesIO()
    layer.write_layer(cast(ImageEngine, engine), "c", planned, sink, Survey(), lambda: None)
    sink.seek(0)
    with tarfile.open(fileobj=sink) as archive:
        return {each.name: each.linkname for each in archive}


def test_entries_are_named_from_the_root_on() -> None:
    engine = Archives(
        entry("x", tarfile.DIRTYPE), entry("x/f", size=3), entry("x/hard", tarfile.LNKTYPE, link="x/f"),
        entry("x/soft", tarfile.SYMTYPE, link="../y"),
    )  # fmt: skip
    assert written(engine, "/x", A) == {"x": "", "x/f": "", "x/hard": "x/f", "x/soft": "../y"}


def test_a_replaced_directory_hides_what_the_image_had() -> None:
    engine = Archives(entry("x", tarfile.DIRTYPE), entry("x/f"))
    assert list(written(engine, "/x", D, present=("/x",))) == ["x", "x/.wh..wh..opq", "x/f"]


@pytest.mark.parametrize("name", ["x/../../etc/passwd", "x/.wh.passwd"])
def test_names_that_reach_elsewhere_are_left_out(name: str) -> None:
    assert list(written(Archives(entry("x", tarfile.DIRTYPE), entry(name)), "/x", A)) == ["x"]


def test_devices_pipes_and_sockets_are_left_out() -> None:
    engine = Archives(entry("x", tarfile.DIRTYPE), entry("x/null", tarfile.CHRTYPE), entry("x/pipe", tarfile.FIFOTYPE))
    assert list(written(engine, "/x", A)) == ["x"]
