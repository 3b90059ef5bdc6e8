"""What the helper does and refuses, asked line by line as a worker would; a stand-in does it."""

import io
import json
import os
import uuid
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from fgpu.limits import GpuLimit, format_limits
from folders.files.roots import MARKER, write_marker
from folders.files.walk import Usage
from hostworker.privileged import server
from hostworker.privileged.base import ContainerFiles, KernelUse
from hostworker.privileged.firewall import FirewallError
from hostworker.privileged.host_privileges import HostPrivileges
from hostworker.privileged.server import Operations
from tests.wait import until

ID = "a" * 64
SANDBOX_ID = "b" * 64
FOLDER = f"/var/lib/docker/containers/{SANDBOX_ID}"
FILES = "/roots/disk/7/abcdefghijklmnop/files"
NETWORK = "100.64.1.0/24"
CONTAINER = [ID, 7, f"{FOLDER}/hostname", f"{FOLDER}/hosts"]


class Recorded(HostPrivileges):
    """Stands in for root: notes what it is asked for."""

    def __init__(self) -> None:
        self.done: list[tuple[object, ...]] = []

    def problem(self) -> str:
        return ""

    def give_to_root(self, path: Path) -> None:
        self.done.append(("give_to_root", path.resolve()))

    def rewrite_limits(self, path: Path, text: str) -> None:
        self.done.append(("rewrite_limits", path.resolve(), text))

    def process_started(self, main_pid: int, pid: int) -> int | None:
        self.done.append(("process_started", main_pid, pid))
        return 7

    def container_of(self, pid: int) -> str:
        return f"container of {pid}"

    def hook_inodes(self, pid: int) -> frozenset[int] | None:
        return frozenset({3, 1}) if pid == 1 else None

    def starts_hooked(self, main_pid: int, hooks: Collection[int]) -> bool | None:
        return main_pid in hooks

    def limit_gpu_memory(self, main_pid: int, limits: Mapping[str, int]) -> None:
        self.done.append(("limit_gpu_memory", main_pid, limits))

    def can_name(self, container: ContainerFiles) -> bool:
        return container.pid == CONTAINER[1]

    def give_name(self, container: ContainerFiles, hostname: str) -> None:
        self.done.append(("give_name", container.container_id, str(container.hosts_path), hostname))

    def set_mount_read_only(self, main_pid: int, source: Path, read_only: bool) -> bool:
        self.done.append(("set_mount_read_only", main_pid, source, read_only))
        return True

    def end_mount_writers(self, main_pid: int, source: Path) -> list[str]:
        return ["cat"]

    def take_mount_away(self, main_pid: int, source: Path) -> list[str]:
        self.done.append(("take_mount_away", main_pid, source))
        return []

    def raise_kernel_limits(self) -> None:
        self.done.append(("raise_kernel_limits",))

    def kernel_use(self, containers: Collection[str]) -> KernelUse:
        return KernelUse(held={container: {"open files": 7} for container in containers}, limits={"open files": 9})

    def bound_terminals(self, main_pid: int) -> None:
        self.done.append(("bound_terminals", main_pid))

    def firewall_problem(self) -> str:
        return "none"

    def hold_firewall(self, device: str, worker: str, deny_private: bool) -> None:
        if device == "gpfails":
            raise FirewallError("iptables failed")
        self.done.append(("hold_firewall", device, worker, deny_private))

    def clusters_problem(self) -> str:
        return "none"

    def hold_cluster(self, network: str, local: str, elsewhere: Mapping[str, str], owner: str) -> None:
        self.done.append(("hold_cluster", network, local, elsewhere, owner))

    def join_cluster(self, container: ContainerFiles, network: str, names: Sequence[str], index: int) -> None:
        self.done.append(("join_cluster", container.container_id, network, names, index))

    def silent_in_cluster(self, container: ContainerFiles, network: str, indexes: Collection[int]) -> list[int]:
        self.done.append(("silent_in_cluster", container.container_id, network, indexes))
        return [3]

    def keep_clusters(self, networks: Collection[str], owner: str) -> None:
        self.done.append(("keep_clusters", networks, owner))

    def limit_storage(self, root: Path, owner: int, project: int, max_bytes: int | None, max_files: int | None) -> bool:
        self.done.append(("limit_storage", str(root), owner, project, max_bytes, max_files))
        return True

    def map_root(self, root: Path, key: str) -> Path:
        self.done.append(("map_root", root, key))
        return Path("/mapped", key)

    def purge(self, root: Path, key: str, holder: int, folder: str = "") -> bool:
        self.done.append(("purge", root, key, holder, folder))
        return True

    def folder_usage(self, root: Path, key: str, holder: int, folder: str, most: int | None) -> Usage:
        self.done.append(("folder_usage", root, key, holder, folder, most))
        return Usage(4096, 1)

    def unmap_root(self, key: str) -> None:
        self.done.append(("unmap_root", key))

    def bound_files(self, main_pid: int, max_files: int | None) -> int | None:
        return None if max_files is None else main_pid * max_files


@pytest.fixture
def root() -> Recorded:
    return Recorded()


@pytest.fixture
def operations(root: Recorded, tmp_path: Path) -> Operations:
    return Operations(root, os.getuid(), tmp_path)


def ask(operations: Operations, operation: str, *arguments: object) -> Any:
    """Return the result; fail with what the helper says went wrong."""
    number, result, failure = json.loads(operations.answer(json.dumps([5, operation, arguments])))
    assert number == 5
    if failure:
        raise AssertionError(": ".join(failure))
    return result


def limits_file(path: Path, mode: int = 0o444) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("limits")
    path.chmod(mode)
    return path


def test_each_operation_is_done_and_answered(operations: Operations, root: Recorded) -> None:
    assert ask(operations, "container_of", 9) == "container of 9"
    assert ask(operations, "hook_inodes", 1) == [1, 3]
    assert ask(operations, "hook_inodes", 2) is None
    assert ask(operations, "starts_hooked", 2, [1, 2]) is True
    assert ask(operations, "can_name", CONTAINER) is True
    assert ask(operations, "firewall_problem") == "none"
    ask(operations, "limit_gpu_memory", 4, {"GPU-1": 1 << 40})
    ask(operations, "give_name", CONTAINER, "main1.tour")
    ask(operations, "hold_firewall", "gpuplatform", "here", True)
    assert ask(operations, "set_mount_read_only", 4, FILES, True) is True
    assert ask(operations, "end_mount_writers", 4, FILES) == ["cat"]
    assert ask(operations, "take_mount_away", 4, FILES) == []
    ask(operations, "raise_kernel_limits")
    assert ask(operations, "kernel_use", [ID]) == [{ID: {"open files": 7}}, {"open files": 9}]
    ask(operations, "bound_terminals", 4)
    assert root.done == [
        ("limit_gpu_memory", 4, {"GPU-1": 1 << 40}),
        ("give_name", ID, f"{FOLDER}/hosts", "main1.tour"),
        ("hold_firewall", "gpuplatform", "here", True),
        ("set_mount_read_only", 4, Path(FILES), True),
        ("take_mount_away", 4, Path(FILES)),
        ("raise_kernel_limits",),
        ("bound_terminals", 4),
    ]


def test_networks_of_clusters_are_held_joined_and_kept(operations: Operations, root: Recorded) -> None:
    assert ask(operations, "clusters_problem") == "none"
    ask(operations, "hold_cluster", NETWORK, "10.0.0.1", {"100.64.1.2": "10.0.0.2"}, "ours")
    ask(operations, "join_cluster", CONTAINER, NETWORK, ["main1", "sub1"], 2)
    assert ask(operations, "silent_in_cluster", CONTAINER, NETWORK, [1, 3]) == [3]
    ask(operations, "keep_clusters", [NETWORK], "ours")
    assert root.done == [
        ("hold_cluster", NETWORK, "10.0.0.1", {"100.64.1.2": "10.0.0.2"}, "ours"),
        ("join_cluster", ID, NETWORK, ["main1", "sub1"], 2),
        ("silent_in_cluster", ID, NETWORK, [1, 3]),
        ("keep_clusters", [NETWORK], "ours"),
    ]


@pytest.mark.parametrize(
    "source", ["", "/", "/etc", "/roots/1/aaaabbbbccccdddd", f"{'/roots/1/' + 'a' * 16}/files/x", 5]
)
def test_only_folders_files_are_taken_away(operations: Operations, root: Recorded, source: object) -> None:
    for operation in ("take_mount_away", "end_mount_writers"):
        with pytest.raises(AssertionError, match="no folder's directory"):
            ask(operations, operation, 4, source)
    assert root.done == []


def test_a_limits_file_of_the_worker_is_given_to_root(operations: Operations, root: Recorded, tmp_path: Path) -> None:
    path = limits_file(tmp_path / "sessions" / "a-1" / "limits.conf")
    ask(operations, "give_to_root", str(path))
    assert root.done == [("give_to_root", path)]


def test_limits_are_rewritten_only_by_valid_ones(operations: Operations, root: Recorded, tmp_path: Path) -> None:
    path = limits_file(tmp_path / "sessions" / "a-1" / "limits.conf")
    limit = GpuLimit(uuid=f"GPU-{'0' * 8}-0000-4000-8000-{'0' * 12}", memory_bytes=1 << 30, sm_percent=Decimal(10))
    text = format_limits([limit])
    ask(operations, "rewrite_limits", str(path), text)
    assert root.done == [("rewrite_limits", path, text)]
    for wrong in ("", text.removesuffix("end\n"), "root::0:0:::\n" * 6):
        with pytest.raises(AssertionError):
            ask(operations, "rewrite_limits", str(path), wrong)
    with pytest.raises(AssertionError, match="is not below"):
        ask(operations, "rewrite_limits", "/etc/passwd", text)
    assert len(root.done) == 1
    assert ask(operations, "process_started", 1, 2) == 7


@pytest.mark.parametrize("mode", [0o644, 0o4444, 0o555])
def test_files_that_are_no_limits_stay_whose_they_are(
    operations: Operations, root: Recorded, tmp_path: Path, mode: int
) -> None:
    path = limits_file(tmp_path / "limits.conf", mode)
    with pytest.raises(AssertionError, match="is not a limits file"):
        ask(operations, "give_to_root", str(path))
    assert root.done == []


def test_links_out_of_the_folder_are_not_followed(
    operations: Operations, root: Recorded, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = limits_file(tmp_path_factory.mktemp("outside") / "limits.conf")
    (tmp_path / "folder").symlink_to(outside.parent)
    (tmp_path / "file").symlink_to(outside)
    os.link(outside, tmp_path / "hard")
    for path in (outside, tmp_path / "folder" / "limits.conf", tmp_path / "file", tmp_path / "hard", tmp_path / ".."):
        with pytest.raises(AssertionError, match="PrivilegesError"):
            ask(operations, "give_to_root", str(path))
    assert root.done == []


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("run", ["sh"]),
        ("hold_firewall", ["eth0", "here", False]),
        ("hold_firewall", ["gp0 -j ACCEPT", "here", False]),
        ("hold_firewall", ["gpuplatform", "here", "-j ACCEPT"]),
        ("hold_firewall", ["gpuplatform", 1, False]),
        ("container_of", [0]),
        ("container_of", ["1/../2"]),
        ("container_of", [True]),
        ("give_name", [CONTAINER, "a\nb"]),
        ("give_name", [[ID, 7, "/etc/hostname", "/etc/hosts"], "a"]),
        ("give_name", [["..", 7, *CONTAINER[2:]], "a"]),
        ("give_name", [[ID, 7, f"{FOLDER}/hostname", "/etc/hosts"], "a"]),
        ("can_name", [[ID, 0, *CONTAINER[2:]]]),
        ("join_cluster", [CONTAINER, NETWORK, ["main1", "sub1 evil"], 1]),
        ("join_cluster", [CONTAINER, NETWORK, ["main1"], "1"]),
        ("join_cluster", [CONTAINER, "100.64.1.0/16", ["main1"], 1]),
        ("hold_cluster", ["eth0", "10.0.0.1", {}, "ours"]),
        ("hold_cluster", [NETWORK, "10.0.0.1", {}, "ours\nlink delete lo"]),
        ("silent_in_cluster", [CONTAINER, NETWORK, [-1]]),
        ("keep_clusters", [["100.64.1.0"], "ours"]),
    ],
)
def test_arguments_that_no_worker_sends_are_refused(
    operations: Operations, root: Recorded, operation: str, arguments: list[object]
) -> None:
    with pytest.raises(AssertionError, match=r"PrivilegesError|ValueError"):
        ask(operations, operation, *arguments)
    assert root.done == []


def test_what_an_operation_raises_is_reported_by_name(operations: Operations) -> None:
    with pytest.raises(AssertionError, match=r"^FirewallError: iptables failed$"):
        ask(operations, "hold_firewall", "gpfails", "here", False)


def test_a_helper_without_the_machines_root_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "are not in sight" in server.misplaced("mnt:[1]")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "rootless" in server.misplaced(os.readlink("/proc/self/ns/mnt"))


def test_only_storage_roots_are_limited(operations: Operations, root: Recorded, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="no storage root"):
        ask(operations, "limit_storage", str(tmp_path), 7, 9, None, 100)
    (tmp_path / ".gpuplatform-root").touch()
    assert ask(operations, "limit_storage", str(tmp_path), 7, 9, None, 100) is True
    assert root.done == [("limit_storage", str(tmp_path), 7, 9, None, 100)]
    for amounts in ((-1, 9, None, None), ("7", 9, None, None), (7, 9, -1, None), (7, True, None, None)):
        with pytest.raises(AssertionError, match="no amount"):
            ask(operations, "limit_storage", str(tmp_path), *amounts)


def test_only_storage_roots_of_the_worker_are_mapped(operations: Operations, root: Recorded, tmp_path: Path) -> None:
    key = str(uuid.uuid4())
    write_marker(tmp_path, key)
    os.chown(tmp_path / MARKER, os.getuid() + 1234, -1)
    with pytest.raises(AssertionError, match="no storage root of the worker's"):
        ask(operations, "map_root", str(tmp_path), key)
    operations = Operations(root, os.getuid() + 1234, tmp_path)
    assert ask(operations, "map_root", str(tmp_path), key) == f"/mapped/{key}"
    ask(operations, "unmap_root", key)
    assert root.done == [("map_root", tmp_path, key), ("unmap_root", key)]
    for path, other in ((tmp_path, str(uuid.uuid4())), ("root", key), (tmp_path, f"../{key}"), (tmp_path, 7)):
        with pytest.raises(AssertionError):
            ask(operations, "map_root", str(path), other)
    for wrong in ("..", "", key.upper(), 7, None):
        with pytest.raises(AssertionError, match="no key"):
            ask(operations, "unmap_root", wrong)
    assert len(root.done) == 2


def test_what_is_purged_is_expunged_on_a_root(operations: Operations, root: Recorded, tmp_path: Path) -> None:
    key = str(uuid.uuid4())
    assert ask(operations, "purge", str(tmp_path), key, 7) is True
    assert ask(operations, "purge", str(tmp_path), key, 7, "a" * 16) is True
    assert root.done == [("purge", tmp_path, key, 7, folder) for folder in ("", "a" * 16)]
    for wrong in (("root", key, 7), (str(tmp_path), "..", 7), (str(tmp_path), key, "7")):
        with pytest.raises(AssertionError, match="PrivilegesError"):
            ask(operations, "purge", *wrong)
    for folder in ("..", "a/../b", f"{'a' * 16}/.."):
        with pytest.raises(AssertionError, match="no folder"):
            ask(operations, "purge", str(tmp_path), key, 7, folder)
    assert len(root.done) == 2


def test_folders_of_a_root_are_measured(operations: Operations, root: Recorded, tmp_path: Path) -> None:
    key = str(uuid.uuid4())
    right = (str(tmp_path), key, 7, "a" * 16, 100)
    assert Usage(*ask(operations, "folder_usage", *right)) == Usage(4096, 1)
    assert root.done == [("folder_usage", tmp_path, *right[1:])]
    for position, wrong in ((0, "root"), (1, ".."), (2, -1), (3, ""), (3, ".."), (4, -1)):
        with pytest.raises(AssertionError, match="PrivilegesError"):
            ask(operations, "folder_usage", *right[:position], wrong, *right[position + 1 :])


def test_malformed_line_is_an_error_and_the_next_is_served(
    operations: Operations, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(server, "AT_ONCE", 1)
    monkeypatch.setattr("sys.stdin", io.StringIO('garbage\n7\n[1, "nothing", []]\n'))
    server.serve(operations)
    said = until(lambda: capsys.readouterr().out)
    assert json.loads(said)[0] == 1
