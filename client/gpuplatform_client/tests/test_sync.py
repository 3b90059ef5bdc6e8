"""Mirrors of directories, with OpenSSH's own SFTP server at the other end of the pipe."""

import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuplatform_client.errors import ClientError
from gpuplatform_client.sync import trees
from gpuplatform_client.sync.mirror import Mirror, MirrorResult, StepKind
from gpuplatform_client.sync.sftp import SftpClient
from gpuplatform_client.sync.sftp_packets import SftpBrokenError
from gpuplatform_client.sync.trees import LocalTree, SftpTree, part_of
from gpuplatform_client.tests.program import Command

SERVER = ("/usr/lib/openssh/sftp-server",)


@pytest.fixture
def client() -> Iterator[SftpClient]:
    with SftpClient(SERVER) as client:
        yield client


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A directory with two files."""
    here = tmp_path / "here"
    (here / "src").mkdir(parents=True)
    (here / "src/run.py").write_text("print(1)\n")
    (here / "src/run.py").chmod(0o750)
    (here / "data.bin").write_bytes(os.urandom(3_000_001))
    return here


def mirrored(source: trees.Tree, target: trees.Tree, is_dry: bool = False, **options: object) -> MirrorResult:
    result = Mirror(source, target, **options).run(lambda step: None, is_dry=is_dry)  # type: ignore[arg-type]
    assert not result.problems
    return result


def acts(result: MirrorResult) -> list[tuple[StepKind, str]]:
    return [(step.act, step.path) for step in result.steps]


def content(root: Path) -> dict[str, bytes | None]:
    """Return what is below a directory; None for what is no file."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() and not path.is_symlink() else None
        for path in root.rglob("*")
    }


@pytest.mark.parametrize("is_sent", [True, False], ids=["to", "from"])
def test_a_mirror_copies_only_what_differs(client: SftpClient, here: Path, tmp_path: Path, is_sent: bool) -> None:
    there = tmp_path / "new" / "there"
    source = LocalTree(here) if is_sent else SftpTree(client, str(here))
    target = SftpTree(client, str(there)) if is_sent else LocalTree(there)
    assert len(mirrored(source, target, is_dry=True).steps) == 3
    assert not there.exists()
    first = mirrored(source, target)
    assert content(there) == content(here)
    copied, original = (there / "src/run.py").stat(), (here / "src/run.py").stat()
    assert (copied.st_mode, int(copied.st_mtime)) == (original.st_mode, int(original.st_mtime))
    assert first.copied_bytes == 3_000_001 + len("print(1)\n")
    again = mirrored(source, target)
    assert (again.steps, again.unchanged) == ([], 2)
    (here / "src/run.py").write_text("print(22)\n")
    (there / "own").write_text("mine")
    assert acts(mirrored(source, target)) == [(StepKind.COPY, "src/run.py")]
    assert (there / "own").exists()
    assert acts(mirrored(source, target, deletes=True)) == [(StepKind.REMOVE, "own")]
    assert content(there) == content(here)


def test_contents_count_only_with_checksums(client: SftpClient, here: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    mirrored(LocalTree(here), SftpTree(client, str(there)))
    times = (there / "src/run.py").stat()
    (there / "src/run.py").write_text("print(2)\n")
    os.utime(there / "src/run.py", ns=(times.st_atime_ns, times.st_mtime_ns))
    os.utime(here / "data.bin", (1, 1))
    result = mirrored(LocalTree(here), SftpTree(client, str(there)), by_checksum=True)
    assert acts(result) == [(StepKind.COPY, "src/run.py")]


def test_what_is_left_out_is_neither_copied_nor_removed(client: SftpClient, here: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    for name in ("a.log", "keep.log", "src/cache/x", "src/b.tmp", ".git/HEAD"):
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_text(name)
    (here / ".gitignore").write_text("*.log\n!keep.log\n*.tmp\n")
    (here / "src/.gitignore").write_text("cache/\n!b.tmp\n")
    (there / "old").mkdir(parents=True)
    (there / "old/run.log").write_text("of a run there")
    (there / "old/gone").write_text("")
    result = mirrored(
        LocalTree(here), SftpTree(client, str(there)), deletes=True, by_gitignore=True, patterns=("/data*",)
    )
    names = {"keep.log", "src", "src/run.py", "src/b.tmp", ".gitignore", "src/.gitignore", "old", "old/run.log"}
    assert content(there).keys() == names
    assert (StepKind.REMOVE, "old/gone") in acts(result)


def test_links_are_neither_followed_nor_copied(client: SftpClient, here: Path, tmp_path: Path) -> None:
    outside, there = tmp_path / "outside", tmp_path / "there"
    outside.mkdir()
    (outside / "run.py").write_text("safe")
    there.mkdir()
    for tree in (SftpTree(client, str(there)), LocalTree(there)):
        (there / "src").symlink_to(outside)
        (there / "data.bin").symlink_to(outside / "run.py")
        (here / "link").unlink(missing_ok=True)
        (here / "link").symlink_to(outside)
        result = mirrored(LocalTree(here), tree)
        assert result.skipped == ["link"]
        assert content(outside) == {"run.py": b"safe"}
        assert not (there / "src").is_symlink()
        assert (there / "data.bin").read_bytes() == (here / "data.bin").read_bytes()
        mirrored(LocalTree(outside), tree, deletes=True)
        (there / "run.py").unlink()
        assert not any(there.iterdir())


def test_a_directory_is_replaced_only_with_delete(client: SftpClient, here: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    (there / "data.bin/sub").mkdir(parents=True)
    (there / "data.bin/sub/x").write_text("")
    mirror = Mirror(LocalTree(here), SftpTree(client, str(there)))
    assert mirror.run(lambda step: None).problems == ["data.bin: is a directory there; --delete replaces it."]
    mirrored(LocalTree(here), SftpTree(client, str(there)), deletes=True)
    assert content(there) == content(here)


@pytest.mark.parametrize("is_sent", [True, False], ids=["to", "from"])
def test_a_broken_copy_is_resumed(client: SftpClient, here: Path, tmp_path: Path, is_sent: bool) -> None:
    there = tmp_path / "there"
    there.mkdir()
    tree = LocalTree(here)
    entry = dict(tree.listing(""))["data.bin"]
    whole = (here / "data.bin").read_bytes()
    part = there / part_of("data.bin", entry)
    part.write_bytes(whole[:500_000] + b"holes".ljust(trees.UNSURE_BYTES, b"\0"))
    (there / part_of("src", entry)).write_text("of a file that has changed since")
    reads: list[int] = []

    class Watched(SftpTree if not is_sent else LocalTree):  # type: ignore[misc]
        def read(self, path: str, offset: int = 0) -> Iterator[bytes]:
            reads.append(offset)
            return super().read(path, offset)  # type: ignore[no-any-return]

    source = Watched(here) if is_sent else Watched(client, str(here))
    mirrored(source, SftpTree(client, str(there)) if is_sent else LocalTree(there))
    assert reads == [500_000, 0]
    assert content(there) == content(here)


def test_a_file_that_changes_meanwhile_is_told(client: SftpClient, here: Path, tmp_path: Path) -> None:
    class Growing(LocalTree):
        def read(self, path: str, offset: int = 0) -> Iterator[bytes]:
            yield b"more"
            yield from super().read(path, offset)

    result = Mirror(Growing(here), SftpTree(client, str(tmp_path / "there"))).run(lambda step: None)
    assert result.problems == [f"{path}: has changed while it was copied." for path in ("data.bin", "src/run.py")]
    assert content(tmp_path / "there") == {"src": None}


def test_an_unreadable_source_removes_nothing(client: SftpClient, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/x").write_text("")
    with pytest.raises(ClientError, match="No such file"):
        Mirror(SftpTree(client, str(tmp_path / "none")), LocalTree(tmp_path / "there"), deletes=True).run(print)
    with pytest.raises(FileNotFoundError):
        Mirror(LocalTree(tmp_path / "none"), SftpTree(client, str(tmp_path / "there")), deletes=True).run(print)
    assert (tmp_path / "there/x").exists()


def packet(kind: int, *fields: int | bytes) -> bytes:
    body = b"".join(
        struct.pack(">I", each) if isinstance(each, int) else struct.pack(">I", len(each)) + each for each in fields
    )
    return struct.pack(">IB", len(body) + 1, kind) + body


VERSION = packet(2, 3)
LISTED = VERSION + packet(102, 1, b"h")  # and an answer to OPENDIR
HOSTILE = {
    "no SFTP": b"HTTP/1.1 400 Bad Request\r\n\r\n" * 9,
    "huge": struct.pack(">IB", 2**31, 2),
    "short": VERSION + struct.pack(">IB", 5, 102) + struct.pack(">I", 1),
    "ended": LISTED,
    "parent": LISTED + packet(104, 2, 1, b"../x", b"", 0),
    "absolute": LISTED + packet(104, 2, 1, b"/etc/passwd", b"", 0),
    "many": LISTED + packet(104, 2, 2**31, b"x", b"", 0),
}


@pytest.mark.parametrize("sent", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_server_ends_the_mirror(sent: bytes) -> None:
    script = f"import sys; sys.stdout.buffer.write({sent!r}); sys.stdout.flush(); sys.stdin.read()"
    if sent == LISTED:
        script = script.replace("sys.stdin.read()", "sys.stdin.buffer.read(30)")
    with pytest.raises(SftpBrokenError), SftpClient((sys.executable, "-c", script)) as client:
        list(client.entries("/"))


def test_a_mirror_has_one_side_here(gpuplatform: Command, tmp_path: Path) -> None:
    for places in ((str(tmp_path), "x"), ("a:b", "folder:c")):
        assert "One side is SESSION:PATH" in gpuplatform("sync", *places).stderr
    assert gpuplatform("sync", str(tmp_path), "a:b", "--watch", "--dry-run").exit_code == 2


def test_what_vanishes_while_it_is_listed_is_not_there(here: Path) -> None:
    (here / "draft").write_text("x")
    (here / "gone").mkdir()
    tree = LocalTree(here)
    listing = tree.listing("")
    next(listing)  # the directory is read by now
    (here / "draft").unlink()
    (here / "gone").rmdir()
    assert {name for name, _ in listing} <= {"src", "data.bin"}
    assert [*tree.listing("gone")] == []
    with pytest.raises(FileNotFoundError):
        [*LocalTree(here / "missing").listing("")]
