"""Containers of sessions against the CIS Docker Benchmark, and the system calls that the kernel refuses them."""

import io
import platform
import re
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hostworker.runtime.container_config import SUDO_CAPABILITIES
from hostworker.runtime.docker.runtime import DockerRuntime
from hostworker.runtime.seccomp import problem, profile_for
from hostworker.runtime.tests.runtime_worlds import DockerWorld, make_spec, runtime_of, tiny_world

SENSITIVE = ("/", "/boot", "/dev", "/etc", "/lib", "/proc", "/run", "/sys", "/usr", "/var/run")
PROBE = Path(__file__).with_name("system_calls.c")
EPERM, ENOSYS = 1, 38


world = pytest.fixture(tiny_world)
runtime = pytest.fixture(runtime_of)


def violations(container: Mapping[str, Any], *, allows_sudo: bool) -> list[str]:
    """Return the recommendations of the CIS Docker Benchmark 1.6, section 5, that an inspected container fails.

    Not held on purpose: 5.13, a root file system that is read-only, since users install packages; 5.27, a health check
    of the image, in whose place the platform watches.
    """
    host, mounts = container["HostConfig"], container["Mounts"]
    sources = [str(mount.get("Source", "")) for mount in mounts]
    options = host["SecurityOpt"] or []
    holds = {
        "5.2 AppArmor is not switched off": container["AppArmorProfile"] != "unconfined",
        "5.4 capabilities": host["CapDrop"] == ["ALL"]
        and {each.removeprefix("CAP_") for each in host["CapAdd"] or ()} == set(SUDO_CAPABILITIES * allows_sudo),
        "5.5 not privileged": not host["Privileged"],
        "5.6 no sensitive directory of the host": not set(sources) & set(SENSITIVE),
        "5.8 no ports of the host": not host["PortBindings"] and not host["PublishAllPorts"],
        "5.10 a network namespace": host["NetworkMode"] != "host",
        "5.11 memory": host["Memory"] > 0 and host["MemorySwap"] == host["Memory"],
        "5.12 CPUs": host["NanoCpus"] > 0,
        "5.15 restarts": host["RestartPolicy"]["Name"] == "no",
        "5.16 a PID namespace": host["PidMode"] == "",
        "5.17 an IPC namespace": host["IpcMode"] == "private",
        "5.18 no devices of the host": not host["Devices"] and not host["DeviceRequests"],
        "5.19 limits of its own": {"Name": "core", "Soft": 0, "Hard": 0} in host["Ulimits"],
        "5.20 no shared mounts": all("shared" not in mount["Propagation"] for mount in mounts),
        "5.21 a UTS namespace": host["UTSMode"] == "",
        "5.22 seccomp": any(option.startswith("seccomp={") for option in options),
        "5.25 the engine's cgroup": host["CgroupParent"] == "",
        "5.26 no new privileges": allows_sudo or "no-new-privileges" in options,
        "5.29 processes": host["PidsLimit"] > 0,
        "5.30 not on the engine's own bridge": host["NetworkMode"] not in ("bridge", "default"),
        "5.31 the engine's user namespace": host["UsernsMode"] == "",
        "5.32 not the engine's socket": not [each for each in sources if each.endswith("docker.sock")],
    }
    return [name for name, is_held in holds.items() if not is_held]


@pytest.mark.docker
def test_containers_hold_the_benchmark_and_the_kernel_filters_their_calls(
    world: DockerWorld, runtime: DockerRuntime, tmp_path: Path
) -> None:
    program = compiled(tmp_path)
    for allows_sudo in (False, True):
        spec = make_spec(world.image, allow_sudo=allows_sudo)
        runtime.create(spec)
        runtime.start(spec.session, 1)
        container = world.inspect(spec.session, 1)
        assert violations(container, allows_sudo=allows_sudo) == []
        world.client.put_archive(container["Id"], "/tmp", program)
        results = world.execute(spec.session, 1, "/tmp/probe; grep ^Seccomp: /proc/self/status")[1]
        assert dict(re.findall(r"(\S+) (\d+)", results)) == {name: str(number) for name, number in EXPECTED.items()}
        assert "Seccomp:\t2" in results, "a filter"


EXPECTED = {
    **dict.fromkeys(("unshare", "clone", "mount", "bpf", "perf_event_open", "userfaultfd", "keyctl"), EPERM),
    **dict.fromkeys(("vsock", "vsock_above_int", "alg", "packet", "personality"), EPERM),
    **dict.fromkeys(("io_uring_setup", "clone3"), ENOSYS),
    **dict.fromkeys(("inet", "unix", "ptrace", "fork"), 0),
}


def compiled(folder: Path) -> bytes:
    """Return a tar of the program, for this machine and any distribution."""
    freestanding = ["-Os", "-ffreestanding", "-fno-stack-protector", "-fno-sanitize=all", "-nostdlib", "-static"]
    target = f"{platform.machine()}-linux"
    subprocess.run(
        [sys.executable, "-m", "ziglang", "cc", "-target", target, *freestanding, PROBE, "-o", "probe"],
        cwd=folder,
        check=True,
    )
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.add(folder / "probe", "probe")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("options", "is_ours", "trouble"),
    [
        (["name=seccomp,profile=default"], True, ""),
        (["name=apparmor", "name=seccomp,profile=builtin"], True, ""),  # engines since 23.0 call it so
        (["name=seccomp,profile=/etc/docker/strict.json"], False, ""),
        (["name=seccomp,profile=unconfined"], False, "unconfined"),
        (["name=apparmor"], False, "no seccomp"),
        (None, False, "no seccomp"),
    ],
)
def test_an_operators_own_profile_is_left_in_place(options: list[str] | None, is_ours: bool, trouble: str) -> None:
    info = {"SecurityOptions": options}
    assert bool(profile_for(info)) == is_ours
    assert trouble in problem(info)
    assert bool(problem(info)) == bool(trouble)
