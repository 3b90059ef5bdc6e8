"""Shares of GPUs in real sessions: started through the platform, on simulated GPUs, under the real hook."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest
from django.conf import settings

from engine.containers import HOST_LABEL
from hostworker.enforcement.arbiter import Arbiter
from hostworker.enforcement.arbiter_folder import ArbiterFolder
from hostworker.enforcement.programs import Programs
from resources.amounts.units import GIB, MIB
from resources.models import Host, ResourceGroup
from sessions.errors import RejectedError
from sessions.launching import services
from sessions.lifecycle import Reason, Status
from sessions.models import GpuShare, Session, SessionUsage
from tests.containers import remove_containers
from tests.fgpu_sessions import (
    NOT_READY,
    OUT_OF_MEMORY,
    ROOT,
    ensure_hook_built,
    ensure_python_image,
    group_of,
    running,
    submit,
    wait_for,
)
from tests.tiny_image import ensure_tiny_image
from tests.wait import until
from tests.workers import host_worker, wait_until_ready

pytestmark = [pytest.mark.docker, pytest.mark.django_db(transaction=True)]

BYPASS = "sed s#/etc/ld.so.preload#/etc/ld.so.xreload# /lib64/ld-linux-x86-64.so.2 > /tmp/ld; chmod +x /tmp/ld"


@pytest.fixture(scope="module")
def name(module_db: None) -> Iterator[str]:
    """The name of a ready host with two simulated GPUs of 8 GiB; what its worker leaves is removed at the end."""
    ensure_hook_built()
    ensure_python_image()
    name = f"fgpu-{uuid4().hex[:8]}"
    with host_worker(name, COMPUTE_SIMULATED_GPUS="2x8GiB nvlink=4"):
        wait_until_ready(name)
        assert Host.objects.get(name=name).gpu_topology["links"] == [["X", "NV4"], ["NV4", "X"]]
        yield name
    remove_containers(f"{HOST_LABEL}={name}")
    shutil.rmtree(folder_of(name).parent, ignore_errors=True)


@pytest.fixture
def group(name: str) -> Iterator[ResourceGroup]:
    """The group of the host, whose GPUs are cut into 2 fGPU; its sessions are ended afterwards."""
    yield group_of(name, 2)
    live = list(Session.objects.live())
    for session in live:
        with suppress(RejectedError):  # it has just ended
            services.terminate(session, actor=session.owner)
    until(lambda: not Session.objects.live().exists())


def folder_of(host_name: str) -> Path:
    return Path(settings.COMPUTE_FGPU_DIR) / host_name / "sessions"


def shares_of(pk: str) -> list[tuple[str, int]]:
    rows = GpuShare.objects.filter(lease=pk).order_by("gpu__index")
    return [(share.gpu.uuid, share.milli) for share in rows.select_related("gpu")]


def test_half_an_fgpu_of_two_is_a_quarter(group: ResourceGroup) -> None:
    session = running(group, "0.5")
    assert session.total_memory() == [2048]
    assert session.total_memory("env -i") == [2048]
    assert session.total_memory("LD_PRELOAD= ") == [2048]
    assert session.total_memory("sudo") == [2048]
    allocate = ["init", "enter 0", f"alloc plain {2 * GIB} 0"]
    assert session.cuda(*allocate) == ["0", "0", "0"]
    assert session.cuda(*allocate, "alloc plain 1 1") == ["0", "0", "0", OUT_OF_MEMORY]
    for attack in ("rm -f {}", "mv {} /gone", "umount {}", "sh -c 'echo > {}'"):
        for path in ("/etc/ld.so.preload", "/usr/local/lib/libfgpu.so", "/run/fgpu/limits.conf"):
            code, _ = session.run("sudo " + attack.format(path))
            assert code != 0, (attack, path)
    assert session.run("sudo chroot / true")[0] != 0  # elsewhere the loader would find no preload file
    assert session.total_memory() == [2048]
    assert session.cuda(*allocate, "alloc plain 1 1", prefix="sudo") == ["0", "0", "0", OUT_OF_MEMORY]


def test_a_sessions_processes_share_its_memory_limit(group: ResourceGroup) -> None:
    session = running(group, "0.5")
    pid = session.hold(GIB)
    beside = ["init", "enter 0", f"alloc plain {GIB + MIB} 0", f"alloc plain {GIB} 0"]
    assert session.cuda(*beside) == ["0", "0", OUT_OF_MEMORY, "0"]
    assert session.run(f"kill -9 {pid} && while kill -0 {pid}; do sleep 0.02; done 2>/dev/null")[0] == 0
    assert session.cuda(*beside)[2] == "0"


def test_two_sessions_share_one_simulated_gpu(group: ResourceGroup) -> None:
    one, other = running(group, "0.5"), running(group, "1.5")
    assert (one.total_memory(), other.total_memory()) == ([2048], [6144])
    other.hold(6 * GIB)
    assert one.run(BYPASS)[0] == 0  # shows the device as it is
    _, device = one.run(
        "/tmp/ld /usr/bin/nvidia-smi --query-gpu=memory.used,memory.total --format=csv,noheader,nounits"
    )
    assert device.split(", ") == ["6144", "8192\n"]
    fill = ["init", "enter 0", f"alloc plain {2 * GIB} 0", "alloc plain 1 1"]
    assert one.cuda(*fill) == ["0", "0", "0", OUT_OF_MEMORY]


def test_sessions_get_turns_from_an_arbiter_that_is_kept_running(group: ResourceGroup, name: str) -> None:
    session = running(group, "0.5")
    arbiter = Arbiter(Programs(build=ROOT, store=ROOT), ArbiterFolder(settings.COMPUTE_VAR_DIR / "arbiter" / name))
    first = until(arbiter.running)
    assert first
    until(lambda: session.run("test -S /run/fgpu/arbiter/arbiter")[0] == 0)
    for attack in ("echo > /run/fgpu/grant", "touch /run/fgpu/arbiter/x", "rm -f /run/fgpu/arbiter/arbiter"):
        assert session.run(f"sudo sh -c '{attack}'")[0] != 0, attack
    lease = arbiter.folder.root / f"{session.session.pk}-1" / "lease.conf"
    assert "sharing=cap" in lease.read_text()
    ResourceGroup.objects.filter(pk=group.pk).update(sharing="burst")
    until(lambda: "sharing=burst" in lease.read_text())
    until(lambda: (found := arbiter.running()) is not None and found.pid != first.pid)  # an arbiter reads a lease once
    second = arbiter.running()
    assert second
    os.kill(second.pid, signal.SIGKILL)
    until(lambda: (found := arbiter.running()) is not None and found.pid not in (first.pid, second.pid))
    ResourceGroup.objects.filter(pk=group.pk).update(sharing="cap")
    services.terminate(session.session, actor=session.session.owner)
    until(lambda: not lease.parent.exists())


def test_a_fifth_of_a_gpu_cut_into_five(group: ResourceGroup, name: str) -> None:
    group_of(name, 5)
    assert running(group, "1").total_memory() == [8192 * 1000 // 5000]


def test_shares_are_on_the_leased_gpus_exactly(group: ResourceGroup) -> None:
    three = running(group, "3")
    shares = shares_of(three.session.pk)
    assert sorted(milli for _, milli in shares) == [1000, 2000]
    _, listed = three.run("nvidia-smi --query-gpu=uuid,memory.total --format=csv,noheader,nounits")
    assert listed.splitlines() == [f"{uuid}, {8192 * milli // 2000}" for uuid, milli in shares]
    rest = running(group, "0.35")
    (halved,) = (uuid for uuid, milli in shares if milli == 1000)
    assert shares_of(rest.session.pk) == [(halved, 350)]
    assert rest.total_memory() == [8 * GIB * 350 // 2000 // MIB]
    exact = 8 * GIB * 350 // 2000
    fits = ["init", "enter 0", f"alloc plain {exact // (2 * MIB) * 2 * MIB} 0", f"alloc plain {2 * MIB} 1"]
    assert rest.cuda(*fits) == ["0", "0", "0", OUT_OF_MEMORY]
    for ended in (three.session, rest.session):
        services.terminate(ended, actor=ended.owner)
        wait_for(ended, Status.TERMINATED)
    assert running(group, "1.5").total_memory() == [6144]
    assert running(group, "1").total_memory() == [4096]


def test_whole_gpus_have_no_hook(group: ResourceGroup) -> None:
    whole = running(group, "2")
    assert whole.total_memory() == [8192]
    assert "libfgpu" not in whole.run("cat /proc/self/maps")[1]
    services.terminate(whole.session, actor=whole.session.owner)
    wait_for(whole.session, Status.TERMINATED)
    none = running(group, "0")
    assert none.run("nvidia-smi")[0] == 127
    assert none.run("ls /run/fgpu /run/fgpu-sim")[0] != 0


@pytest.mark.parametrize("damage", [lambda path: path.write_text("version=1\n"), lambda path: path.chmod(0o666)])
def test_an_invalid_limits_file_disables_cuda(
    group: ResourceGroup, name: str, damage: Callable[[Path], object]
) -> None:
    session = running(group, "0.5")
    (limits,) = folder_of(name).glob("*/limits.conf")
    damage(limits)
    assert session.cuda("init") == [NOT_READY]
    assert "2048" not in session.run("nvidia-smi")[1]


def test_an_image_without_hook_support_is_refused(group: ResourceGroup, name: str) -> None:
    session = submit(group, "0.5", ensure_tiny_image())
    wait_for(session, Status.ERROR)
    assert session.reason == Reason.ENFORCEMENT_FAILED
    assert "glibc" in session.detail
    until(lambda: not list(folder_of(name).iterdir()))
    whole = submit(group, "2", session.image.reference)
    wait_for(whole, Status.RUNNING)


def test_the_watchdog_stops_a_session_bypassing_the_hook(group: ResourceGroup) -> None:
    session = running(group, "0.5")
    assert session.run(BYPASS)[0] == 0
    session.hold(GIB, prefix="/tmp/ld")
    wait_for(session.session, Status.TERMINATED)
    assert session.session.reason == Reason.HOOK_BYPASSED
    assert "without the limits" in session.session.detail


@pytest.mark.parametrize("library", ["libc.so.6", "libcuda.so.1"])
def test_preloading_a_library_gives_no_more_memory(group: ResourceGroup, library: str) -> None:
    session = running(group, "0.5")
    prefix = f"env LD_PRELOAD={library}"
    assert session.total_memory(prefix=prefix) == [2048]
    assert session.cuda("init", "enter 0", f"alloc plain {3 * GIB} 0", prefix=prefix)[-1] == OUT_OF_MEMORY


def test_gpu_usage_is_recorded_for_plots(group: ResourceGroup) -> None:
    session = running(group, "0.5")
    session.hold(GIB)
    until(lambda: SessionUsage.objects.filter(session=session.session, gpu_memory=GIB).exists())


def test_a_shares_files_go_with_its_container(group: ResourceGroup, name: str) -> None:
    session = running(group, "0.5").session
    assert [path.name for path in folder_of(name).iterdir()] == [f"{session.pk}-{session.attempt}"]
    left_over = folder_of(name) / "gone-3"
    left_over.mkdir()
    services.terminate(session, actor=session.owner)
    until(lambda: not list(folder_of(name).iterdir()))
