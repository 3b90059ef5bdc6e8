"""A host serves each of its storage roots on its own: one that hangs holds up no other, nor the worker's end."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from folders.files.roots import MARKER
from folders.models import Folder, HostRoot, QuotaSupport, StorageRoot
from folders.quotas import measure
from folders.sharing import folders as services
from folders.storage import paths as storage
from folders.storage import roots
from hostworker.privileged.host_privileges import HostPrivileges
from hostworker.runtime.memory.runtime import MemoryFolders
from hostworker.runtime_protocol import MountError
from hostworker.storage import folder_storage
from hostworker.storage.folder_storage import FolderStorage
from hostworker.tests.fault_injection import FaultInjectingRuntime
from resources.models import Host
from tests.factories import make_host, make_user
from tests.wait import until

pytestmark = pytest.mark.django_db(transaction=True)


class Refusing(HostPrivileges):
    """Root that cannot set quotas."""

    def limit_storage(self, root: Path, owner: int, project: int, max_bytes: int | None, max_files: int | None) -> bool:
        raise OSError("not permitted")


def make_folder_on_disk(tmp_path: Path, name: str) -> Folder:
    """Return a folder on a root of its own."""
    root = StorageRoot.objects.create(name=name, path=str(tmp_path / name))
    storage.prepare_root(root)
    return services.create(make_user(), "data", root)


def serving(host: Host, stopped: threading.Event) -> FolderStorage:
    """Return what serves the roots of the host, after a look at them."""
    made = FolderStorage(FaultInjectingRuntime(), host, Refusing(), stopped)
    made.check_storage()
    return made


def test_a_host_whose_engine_maps_users_has_no_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, host = make_folder_on_disk(tmp_path, "disk"), make_host()
    monkeypatch.setattr(FaultInjectingRuntime, "folders_problem", lambda self: "It maps users.")
    serving(host, threading.Event())
    found = HostRoot.objects.get(host=host, root=folder.root)
    assert (found.is_present, found.problem) == (False, "It maps users.")


class Mapping:
    """Stands in for the mounts of roots: which there are, and why there can be none."""

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self.problem = ""

    def map_root(self, folders: MemoryFolders, root: Path, key: str) -> Path:
        if self.problem:
            raise MountError(self.problem)
        self.keys.add(key)
        return root

    def unmap_root(self, folders: MemoryFolders, key: str) -> None:
        self.keys.remove(key)


@pytest.fixture
def mapping(monkeypatch: pytest.MonkeyPatch) -> Mapping:
    made = Mapping()
    monkeypatch.setattr(MemoryFolders, "map_root", lambda *arguments: made.map_root(*arguments))
    monkeypatch.setattr(MemoryFolders, "unmap_root", lambda *arguments: made.unmap_root(*arguments))
    return made


def test_roots_of_other_users_are_mapped_while_they_are_there(tmp_path: Path, mapping: Mapping) -> None:
    root, host = make_folder_on_disk(tmp_path, "disk").root, make_host()
    make_folder_on_disk(tmp_path, "of-sessions-user")
    marker = tmp_path / "disk" / MARKER
    os.chown(marker, 1234, 1234)
    storage_of_host = serving(host, threading.Event())
    assert mapping.keys == {str(root.key)}
    marker.rename(marker.with_name("away"))
    roots._probes.clear()
    storage_of_host.check_storage()
    assert mapping.keys == set()
    assert "has no marker file" in HostRoot.objects.get(root=root).problem
    marker.with_name("away").rename(marker)
    roots._probes.clear()
    storage_of_host.check_storage()
    assert mapping.keys == {str(root.key)}
    storage_of_host.end()
    assert mapping.keys == set()


def test_a_host_that_cannot_map_a_root_lacks_it(tmp_path: Path, mapping: Mapping) -> None:
    root, host = make_folder_on_disk(tmp_path, "disk").root, make_host()
    os.chown(tmp_path / "disk" / MARKER, 1234, 1234)
    mapping.problem = "It has no id-mapped mounts."
    storage_of_host = serving(host, threading.Event())
    found = HostRoot.objects.get(host=host, root=root)
    assert (found.is_present, found.problem) == (False, mapping.problem)
    assert roots.warnings() == [f"Storage root disk is on no host: {mapping.problem}"]
    mapping.problem = ""
    storage_of_host.check_storage()
    assert HostRoot.objects.get(host=host, root=root).is_present


def test_a_root_that_hangs_holds_up_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck, other = make_folder_on_disk(tmp_path, "stuck"), make_folder_on_disk(tmp_path, "other")
    answers, look = threading.Event(), measure.measure_due

    def hang_or_look(root: StorageRoot, stopped: threading.Event, **how: Any) -> int:
        if root == stuck.root:
            answers.wait()
        return look(root, stopped, **how)

    monkeypatch.setattr(measure, "measure_due", hang_or_look)
    monkeypatch.setattr(folder_storage, "END_SECONDS", 0.1)
    stopped = threading.Event()
    storage_of_host = serving(make_host(), stopped)
    for _ in range(3):
        storage_of_host.serve_roots()
    until(lambda: Folder.objects.filter(pk=other.pk, measured_at__isnull=False).exists())
    assert not Folder.objects.filter(pk=stuck.pk, measured_at__isnull=False).exists()
    assert sum(thread.name == "storage stuck" for thread in threading.enumerate()) == 1
    storage_of_host.end()
    answers.set()
    until(lambda: Folder.objects.filter(pk=stuck.pk, measured_at__isnull=False).exists())


def test_folders_are_measured_where_quotas_cannot_be_set(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder, host = make_folder_on_disk(tmp_path, "disk"), make_host()
    storage_of_host = serving(host, threading.Event())
    HostRoot.objects.filter(host=host).update(quota_support=QuotaSupport.ENFORCED)
    storage_of_host.serve_roots()
    until(lambda: Folder.objects.filter(pk=folder.pk, measured_at__isnull=False).exists())
    assert "its quotas could not be set" in caplog.text
    storage_of_host.end()
