"""The installed hook in a real container: bound read-only, read by the loader, and not to be put aside even as root."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fgpu.limits import LIMITS_PATH, REGION_PATH
from fgpu.mounts import HOOK_PATH
from fgpu.tests.containers import Container, docker, import_image, tools
from fgpu.tests.host import GIB, OUT_OF_MEMORY, SYSTEM_NOT_READY, Host, limit

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def image(built: Path) -> Iterator[str]:
    """A root file system of a few of this machine's own programs: nothing to download."""
    with import_image(tools()) as name:
        yield name


@pytest.fixture
def started() -> Iterator[list[Container]]:
    containers: list[Container] = []
    yield containers
    for container in containers:
        docker("rm", "-f", container.id)


@pytest.fixture(scope="module")
def attacked(image: str, built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    """A container for attacks that must change nothing in it."""
    host = Host(tmp_path_factory.mktemp("attacked"))
    container = Container(image, host.session())
    yield container
    docker("rm", "-f", container.id)
    host.stop()


@pytest.fixture
def container(image: str, host: Host, started: list[Container]) -> Container:
    started.append(Container(image, host.session()))
    return started[-1]


@pytest.mark.parametrize(
    "command",
    [
        "nvidia-smi",
        "env -i /usr/bin/nvidia-smi",
        "env LD_PRELOAD= nvidia-smi",
        "env LD_PRELOAD=libc.so.6 nvidia-smi",
        "env LD_PRELOAD=libcuda.so.1:libnvidia-ml.so.1 nvidia-smi",
        "env FGPU_LIMITS=/tmp/mine FGPU_REGION=/tmp/mine CUDA_DISABLE_CONTROL=true nvidia-smi",
        "sh -c 'sh -c nvidia-smi'",
    ],
)
def test_nvidia_smi_shows_the_share_whatever_the_environment(attacked: Container, command: str) -> None:
    assert "/ 2048MiB" in attacked.run("sh", "-c", command).stdout


@pytest.mark.parametrize("path", ["/etc/ld.so.preload", HOOK_PATH, LIMITS_PATH])
@pytest.mark.parametrize(
    "attack",
    ["rm -f {}", "mv {} /gone", "umount {}", "cp /dev/null {}", "sh -c 'echo > {}'", "sed -i d {}"],
)
def test_root_in_the_container_cannot_put_the_hook_aside(attacked: Container, attack: str, path: str) -> None:
    assert attacked.run("sh", "-c", attack.format(path)).returncode != 0
    assert "/ 2048MiB" in attacked.run("nvidia-smi").stdout
    assert attacked.ask("init", "enter 0", f"alloc plain {3 * GIB} 0")[-1] == str(OUT_OF_MEMORY)


def test_a_static_program_runs_as_ever(container: Container) -> None:
    done = container.run("static")
    assert (done.returncode, done.stdout, done.stderr) == (0, "static\n", "")


def test_the_region_can_be_neither_removed_nor_replaced(container: Container) -> None:
    for attack in (f"rm -f {REGION_PATH}", f"mv {REGION_PATH} /gone", f"umount {REGION_PATH}"):
        assert container.run("sh", "-c", attack).returncode != 0


def test_spoiling_the_region_ends_in_no_cuda(container: Container) -> None:
    container.run("sh", "-c", f"echo garbage > {REGION_PATH}")
    assert container.ask("init") == [str(SYSTEM_NOT_READY)]
    assert "Insufficient Permissions" in container.run("nvidia-smi").stdout


@pytest.mark.parametrize("missing", [LIMITS_PATH, REGION_PATH])
def test_without_its_files_the_hook_allows_no_cuda(
    image: str, host: Host, started: list[Container], missing: str
) -> None:
    started.append(Container(image, host.session(), leave_out=missing))
    assert started[-1].ask("init", "alloc plain 1 0") == [str(SYSTEM_NOT_READY)] * 2


def test_two_containers_share_one_simulated_gpu_and_not_their_caps(
    image: str, host: Host, started: list[Container]
) -> None:
    started.append(Container(image, host.session()))
    started.append(Container(image, host.session(limit(memory=6 * GIB))))
    with_first = "init", "enter 0", f"alloc plain {2 * GIB} 0", "info"
    assert started[0].ask(*with_first)[2:] == ["0", f"0 0 {2 * GIB}"]
    assert started[1].ask("init", "enter 0", f"alloc plain {6 * GIB} 0", "alloc plain 1 1")[2:] == ["0", "2"]


def test_a_process_of_another_pid_namespace_is_not_reaped(image: str, host: Host, started: list[Container]) -> None:
    """Two containers on one region have the same pids; the slot's lock tells their processes apart."""
    session = host.session()
    started.append(Container(image, session))
    started.append(Container(image, session))
    command = ["docker", "exec", "-i", started[0].id, "probe"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin
        assert holder.stdout
        holder.stdin.write(f"init\nenter 0\nalloc plain {GIB} 0\n")
        holder.stdin.flush()
        assert [holder.stdout.readline().strip() for _ in range(3)] == ["0", "0", "0"]
        assert started[1].ask("init", "enter 0", f"alloc plain {2 * GIB} 0")[-1] == str(OUT_OF_MEMORY)
        holder.stdin.close()
