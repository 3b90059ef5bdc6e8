"""Users over their storage quota: their folders turn read-only in running containers, and writable again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from folders.files.kernel_quota import project_number
from folders.models import Folder, HostRoot, QuotaSupport, StorageRoot
from folders.sharing import folders as services
from folders.storage import paths as storage
from hostworker.privileged.host_privileges import HostPrivileges
from hostworker.runtime.tests.runtime_worlds import DockerWorld, make_spec
from hostworker.runtime_protocol import FolderMount, Runtime
from hostworker.storage.storage_quota import StorageQuotas
from hostworker.tests.fault_injection import FaultInjectingRuntime
from resources.models import Host
from sessions.models import Mount
from tests.factories import make_folder, make_host, make_policy, make_session, make_user, owner_of, run_session
from tests.shell_image import ensure_shell_image
from tests.wait import until

pytestmark = pytest.mark.django_db(transaction=True)
MIB = 2**20


class Limits(HostPrivileges):
    """Stands in for a file system with quotas."""

    def __init__(self, fails_for: int | None = None) -> None:
        self.fails_for = fails_for
        self.passed: list[tuple[object, ...]] = []
        self.enforces = True

    def limit_storage(self, root: Path, owner: int, project: int, max_bytes: int | None, max_files: int | None) -> bool:
        if owner == self.fails_for:
            raise OSError("quota is off")
        self.passed.append((root, owner, project, max_bytes, max_files))
        return self.enforces


@pytest.fixture
def host() -> Host:
    """This machine."""
    return make_host()


@pytest.fixture
def root(tmp_path: Path, host: Host) -> StorageRoot:
    """A root on this machine."""
    root = StorageRoot.objects.create(name="local", path=str(tmp_path / "root"))
    storage.prepare_root(root)
    HostRoot.objects.create(host=host, root=root, is_present=True)
    return root


@pytest.fixture
def folder(root: StorageRoot) -> Folder:
    """A folder of a user who may store 1 MiB."""
    return services.create(make_user(policy=make_policy(storage_bytes=MIB)), "data", root)


@pytest.fixture
def mount(folder: Folder, host: Host) -> Mount:
    """The folder in a running session, writable."""
    session = make_session(owner=folder.owner, resource_group=host.group)
    session = run_session(session, host=host)
    return Mount.objects.create(session=session, folder=folder, folder_name="data", path="/home/work/data")


def start(runtime: Runtime, mount: Mount, image: str = "tiny") -> None:
    """Start the session's container with the folder in it."""
    assert mount.folder
    source = Path(storage.root_directory(mount.folder.root).files_path(mount.folder.holder_number, mount.folder.pk))
    folders = (FolderMount(source=source, target=mount.path),)
    key = {"session": mount.session_id, "attempt": mount.session.attempt}
    runtime.create(make_spec(image, folders=folders, **key))
    runtime.start(mount.session_id, mount.session.attempt)


def is_read_only(runtime: FaultInjectingRuntime, mount: Mount) -> bool:
    """Return whether the container has the folder read-only."""
    container = runtime.find(mount.session_id, mount.session.attempt)
    assert container
    return container.spec.folders[0].is_read_only


def use(folder: Folder, amount: int) -> None:
    """Have the folder measured as this large, in bytes."""
    Folder.objects.filter(pk=folder.pk).update(used_bytes=amount)


def test_mounts_turn_read_only_while_their_owner_is_over(folder: Folder, mount: Mount, host: Host) -> None:
    runtime = FaultInjectingRuntime()
    start(runtime, mount)
    quotas = StorageQuotas(runtime, host, HostPrivileges())
    for amount, is_held in ((MIB, False), (MIB + 1, True), (MIB + 1, True), (MIB, False), (0, False)):
        use(folder, amount)
        quotas.hold_mounts()
        mount.refresh_from_db()
        assert (mount.is_held_read_only, is_read_only(runtime, mount)) == (is_held, is_held)


@pytest.mark.parametrize("change", [{"is_read_only": True}, {"problem": "missing"}, {"folder": None}])
def test_only_writable_mounts_are_held(change: dict[str, object], folder: Folder, mount: Mount, host: Host) -> None:
    runtime = FaultInjectingRuntime()
    start(runtime, mount)
    use(folder, 2 * MIB)
    Mount.objects.filter(pk=mount.pk).update(**change)
    StorageQuotas(runtime, host, HostPrivileges()).hold_mounts()
    assert not is_read_only(runtime, mount)


def test_a_share_that_became_read_only_stays_so(folder: Folder, mount: Mount, host: Host) -> None:
    runtime = FaultInjectingRuntime()
    start(runtime, mount)
    quotas = StorageQuotas(runtime, host, HostPrivileges())
    use(folder, 2 * MIB)
    quotas.hold_mounts()
    Mount.objects.update(is_read_only=True)
    use(folder, 0)
    quotas.hold_mounts()
    assert is_read_only(runtime, mount)


def test_a_quota_of_the_file_system_is_watched_with_tolerance(folder: Folder, mount: Mount, host: Host) -> None:
    runtime = FaultInjectingRuntime()
    start(runtime, mount)
    HostRoot.objects.update(quota_support=QuotaSupport.ENFORCED)
    for amount, is_held in ((MIB + 1, False), (2 * MIB, True), (0, False)):
        use(folder, amount)
        StorageQuotas(runtime, host, HostPrivileges()).hold_mounts()
        assert is_read_only(runtime, mount) == is_held


def test_a_new_container_of_a_held_session_is_held_too(folder: Folder, mount: Mount, host: Host) -> None:
    use(folder, 2 * MIB)
    Mount.objects.update(is_held_read_only=True)  # as of an earlier attempt
    runtime = FaultInjectingRuntime()
    start(runtime, mount)
    StorageQuotas(runtime, host, HostPrivileges()).hold_mounts()
    assert is_read_only(runtime, mount)


def test_changed_limits_are_passed_to_the_file_system(folder: Folder, root: StorageRoot, host: Host) -> None:
    limits = Limits()
    quotas = StorageQuotas(FaultInjectingRuntime(), host, limits)
    number = project_number(root.pk, folder.holder_number)
    for _ in range(2):
        quotas.limit_owners(root)
    assert limits.passed == [(Path(root.path), folder.holder_number, number, MIB, None)]
    type(owner_of(folder).policy).objects.update(storage_bytes=None, storage_files=100)
    quotas.limit_owners(root)
    assert limits.passed[1:] == [(Path(root.path), folder.holder_number, number, None, 100)]
    limits.enforces = False
    again = StorageQuotas(FaultInjectingRuntime(), host, limits)
    for _ in range(2):  # not taken, so they are passed again
        again.limit_owners(root)
    assert len(limits.passed) == 4


def test_limits_that_fail_hold_up_no_others(folder: Folder, root: StorageRoot, host: Host) -> None:
    other = make_folder(make_user(policy=owner_of(folder).policy), root=root, name="other")
    failing = Limits(fails_for=folder.holder_number)
    with pytest.raises(OSError, match="quota"):
        StorageQuotas(FaultInjectingRuntime(), host, failing).limit_owners(root)
    assert [passed[1] for passed in failing.passed] == [other.holder_number]


@pytest.fixture
def world() -> Iterator[DockerWorld]:
    """A real engine."""
    made = DockerWorld(ensure_shell_image())
    yield made
    made.clean_up()


@pytest.mark.docker
def test_a_full_quota_is_met_in_the_container(folder: Folder, mount: Mount, host: Host, world: DockerWorld) -> None:
    runtime = world.runtime(host=host.name)
    start(runtime, mount, world.image)
    quotas = StorageQuotas(runtime, host, HostPrivileges())
    key = mount.session_id, mount.session.attempt

    def run(command: str) -> str:
        return runtime.execute(*key, ["sh", "-c", command], {}).output

    assert run("echo x >~/data/x && echo done") == "done\n"
    run("sleep 1000 >~/data/log & until [ -e ~/data/log ]; do sleep 0.05; done")
    use(folder, MIB + 1)
    quotas.hold_mounts()  # in vain: a program has a file open, and the quota is hardly exceeded
    assert run("echo x >~/data/x && echo done") == "done\n"
    use(folder, 2 * MIB)

    def is_held() -> bool:
        quotas.hold_mounts()
        return Mount.objects.get().is_held_read_only

    until(is_held)  # once the program has ended
    assert "Read-only file system" in run("echo x >~/data/x")
    assert "x" in run("cat ~/data/x")
    use(folder, 0)
    quotas.hold_mounts()
    assert run("echo x >~/data/x && echo done") == "done\n"
