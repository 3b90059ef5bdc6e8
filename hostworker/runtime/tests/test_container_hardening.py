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
        tried = [f"({attempt}) > /dev/null 2>&1 && echo {number}" for number, attempt in enumerate(ATTEMPTS)]
        succeeded = world.execute(spec.session, 1, "\n".join([*tried, "echo end"]))[1].split()
        assert [each if each == "end" else ATTEMPTS[int(each)] for each in succeeded] == ["end"]


EXPECTED = {
    **dict.fromkeys(("unshare", "clone", "mount", "bpf", "perf_event_open", "userfaultfd", "keyctl"), EPERM),
    **dict.fromkeys(("vsock", "vsock_above_int", "alg", "packet", "personality"), EPERM),
    **dict.fromkeys(("raw", "mknod_disk", "mknod_memory", "setns", "open_by_handle_at", "fanotify_init"), EPERM),
    **dict.fromkeys(("init_module", "kexec_load", "reboot", "swapon", "quotactl", "syslog"), EPERM),
    **dict.fromkeys(("clock_settime", "adjtimex", "sethostname", "add_key", "request_key"), EPERM),
    **dict.fromkeys(("chroot", "pivot_root", "umount2", "fsopen", "open_tree", "move_mount", "acct"), EPERM),
    "sched_setscheduler": EPERM,
    **dict.fromkeys(("io_uring_setup", "clone3"), ENOSYS),
    **dict.fromkeys(("inet", "unix", "ptrace", "fork"), 0),
}
# Files that a session's root may not write to: settings of the kernel, programs that it runs, limits of the session.
NOT_WRITTEN = """
    /proc/sys/kernel/core_pattern /proc/sys/kernel/panic /proc/sys/net/ipv4/ip_forward /proc/sys/vm/drop_caches
    /proc/sysrq-trigger /proc/irq/default_smp_affinity /proc/sys/fs/binfmt_misc/register /sys/kernel/uevent_helper
    /sys/power/state /sys/fs/cgroup/*/release_agent /sys/fs/cgroup/*/notify_on_release /sys/fs/cgroup/*/tasks
    /sys/fs/cgroup/*/memory.limit_in_bytes /sys/fs/cgroup/*/pids.max /sys/fs/cgroup/*/devices.allow
    /sys/fs/cgroup/memory.max /sys/fs/cgroup/pids.max /sys/fs/cgroup/cgroup.procs /etc/hosts
"""
# And those of which it reads nothing: what the kernel and the devices tell of the host.
NOT_READ = """
    /proc/kcore /proc/keys /proc/timer_list /proc/sched_debug /proc/latency_stats /proc/kmsg /dev/kmsg /dev/mem
    /dev/sda /dev/vda /sys/firmware/* /sys/kernel/debug/* /sys/kernel/security/* /sys/fs/bpf/*
"""
# Commands of it that must fail: they raise limits, reach the engine, or take the place of a neighbour on the bridge.
ATTEMPTS = (
    *(f"for file in {path}; do [ -e $file ] && echo 1 > $file && exit 0; done; false" for path in NOT_WRITTEN.split()),
    *(f'for file in {path}; do [ "$(head -c 1 $file)" ] && exit 0; done; false' for path in NOT_READ.split()),
    "grep -v '^0* ' /proc/kallsyms",
    "echo -1000 > /proc/self/oom_score_adj",
    "cd /sys/fs/cgroup; [ -d memory ] && cd memory; busybox mkdir below",
    "ulimit -c unlimited",
    "ls /var/run/docker.sock || ls /run/docker.sock || ls /run/containerd",
    "ip link set eth0 down",
    "ip link set eth0 address 02:00:00:00:00:01",
    "ip addr add 172.31.255.9/16 dev eth0",
    "ip neigh add 172.31.255.9 lladdr 02:00:00:00:00:01 dev eth0",
    "ip route add 10.255.0.0/16 dev eth0",
    "grep -v ' lo$' /proc/net/if_inet6",  # an address of IPv6, which the packet filter would have to know
)


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
