"""What root of a session can write to outside of its layer: each such mount has a bound, named here, that holds."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from fgpu.limits import REGION_PATH
from fgpu.mounts import BUILD, SIMULATED_STATE_PATH
from hostworker.enforcement.enforcer import Enforcer
from hostworker.enforcement.programs import Programs
from hostworker.enforcement.simulation import STATE_BYTES
from hostworker.runtime.docker.runtime import DockerRuntime
from hostworker.runtime.tests.runtime_worlds import ENGINE_URL, DockerWorld, make_spec
from hostworker.runtime_protocol import ContainerSpec, FolderMount, GpuGrant
from resources.amounts.units import GIB, MIB
from tests.fgpu_sessions import PYTHON_IMAGE, ensure_hook_built, ensure_python_image

pytestmark = pytest.mark.docker

IN_MEMORY: Final = "in memory, which the session's limit counts"
KERNEL: Final = "the kernel's own files, no storage"
# Every mount that a session can write to, and what bounds it. Add one only with its bound, and a test of that.
BOUNDS: Final = {
    "/": "the policy's limit of bytes and files",
    "/data": "the holder's storage quota",
    REGION_PATH: "counted with the session's layer",
    SIMULATED_STATE_PATH: "cut to its length by the disk watch",
    "/dev": IN_MEMORY,
    "/dev/shm": IN_MEMORY,
    "/dev/mqueue": KERNEL,
    "/dev/pts": KERNEL,
    "/sys/fs/cgroup": IN_MEMORY,  # of cgroup v1; the cgroups themselves are read-only
    "/proc": KERNEL,
    "/proc/kcore": IN_MEMORY,  # devices of /dev, bound over what is hidden
    "/proc/keys": IN_MEMORY,
    "/proc/timer_list": IN_MEMORY,
    "/proc/sched_debug": IN_MEMORY,
    "/proc/latency_stats": IN_MEMORY,
}


@pytest.fixture
def world() -> Iterator[DockerWorld]:
    made = DockerWorld("")
    yield made
    made.clean_up()


@pytest.fixture
def enforcer(tmp_path: Path) -> Enforcer:
    ensure_hook_built()
    return Enforcer(Programs(build=BUILD, store=tmp_path / "programs"), tmp_path / "host", sees_files=True)


@pytest.fixture
def runtime(world: DockerWorld, enforcer: Enforcer) -> DockerRuntime:
    return DockerRuntime(world.installation, "here", ENGINE_URL, network=world.network, enforcer=enforcer)


@pytest.fixture
def session(runtime: DockerRuntime, tmp_path: Path) -> ContainerSpec:
    """A session that has all that a session can have mounted, and sudo."""
    ensure_python_image()
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o777)
    gpu = GpuGrant(
        uuid="GPU-00000000-0000-4000-8000-000000000000",
        share_milli=500,
        gpu_milli=1000,
        memory_bytes=GIB,
        is_simulated=True,
    )
    spec = make_spec(
        PYTHON_IMAGE,
        memory_bytes=256 * MIB,
        gpus=(gpu,),
        folders=(FolderMount(source=folder, target="/data"),),
        variables={"NAME": "value"},
        allow_sudo=True,
    )
    runtime.create(spec)
    runtime.start(spec.session, spec.attempt)
    return spec


def writable_mounts(world: DockerWorld, spec: ContainerSpec) -> set[str]:
    """Return where the session has mounts that are not read-only, as its kernel lists them."""
    pid = world.inspect(spec.session, spec.attempt)["State"]["Pid"]
    found = set()
    for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines():
        fields, of_file_system = (part.split() for part in line.split(" - "))
        if "ro" not in fields[5].split(",") and "ro" not in of_file_system[2].split(","):
            found.add(fields[4])
    return found


def test_every_writable_mount_has_a_named_bound(world: DockerWorld, session: ContainerSpec) -> None:
    container = world.inspect(session.session, session.attempt)
    assert {mount["Destination"] for mount in container["Mounts"] if mount["RW"]} <= BOUNDS.keys()
    assert writable_mounts(world, session) <= BOUNDS.keys()


@pytest.mark.parametrize("path", ["/etc/hosts", "/etc/hostname", "/etc/resolv.conf"])
def test_root_cannot_write_to_the_engines_own_files(world: DockerWorld, session: ContainerSpec, path: str) -> None:
    code, output = world.execute(session.session, session.attempt, f"cat {path}; echo more >> {path}")
    assert code != 0
    assert "Read-only" in output
    _, names = world.execute(session.session, session.attempt, "cat /etc/hosts /etc/resolv.conf; hostname")
    assert {"localhost", "nameserver"} <= set(names.split())


def test_what_is_written_to_the_account_counts(
    world: DockerWorld, runtime: DockerRuntime, session: ContainerSpec
) -> None:
    key = session.session, session.attempt
    before = runtime.disks.written_bytes()[key]
    world.execute(*key, f"head -c 3000000 /dev/zero >> {REGION_PATH}")
    assert runtime.disks.written_bytes()[key] >= before + 3_000_000


def test_the_state_of_simulated_gpus_is_cut_to_its_length(
    world: DockerWorld, runtime: DockerRuntime, enforcer: Enforcer, session: ContainerSpec
) -> None:
    key = session.session, session.attempt
    assert world.execute(*key, "nvidia-smi -L")[0] == 0
    (state,) = enforcer.simulation.glob("state-*")
    assert state.stat().st_size <= STATE_BYTES
    world.execute(*key, f"head -c 80000000 /dev/zero >> {SIMULATED_STATE_PATH}", user="work")
    assert state.stat().st_size > STATE_BYTES
    runtime.disks.written_bytes()
    assert state.stat().st_size == STATE_BYTES
    assert world.execute(*key, "nvidia-smi -L")[0] == 0
