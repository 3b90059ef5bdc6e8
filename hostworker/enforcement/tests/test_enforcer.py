"""What the host prepares for a container's shares: files, mounts, and refusals in words."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fgpu.limits import REGION_BYTES
from hostworker.enforcement.arbiter import Arbiter
from hostworker.enforcement.arbiter_folder import ArbiterFolder
from hostworker.enforcement.enforcer import Enforcer
from hostworker.enforcement.programs import HOOK, NVML, PARTS, Programs
from hostworker.runtime.tests.runtime_worlds import make_spec
from hostworker.runtime_protocol import ContainerSpec, EnforcementError, GpuGrant
from resources.amounts.units import GIB
from resources.gpus.shares import Sharing
from resources.gpus.tiers import Tier

UUIDS = [f"GPU-00000000-0000-4000-8000-00000000000{number}" for number in range(3)]


def grant(number: int = 0, milli: int = 500, tier: Tier = Tier.HOOK, is_simulated: bool = True) -> GpuGrant:
    return GpuGrant(
        uuid=UUIDS[number],
        share_milli=milli,
        gpu_milli=2000,
        memory_bytes=8 * GIB,
        is_simulated=is_simulated,
        tier=tier,
    )


def spec_of(*gpus: GpuGrant) -> ContainerSpec:
    return make_spec("any", gpus=gpus)


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    """Stand-ins for what `make fgpu` builds."""
    for name in PARTS:
        path = tmp_path / "build" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {name}")
    return Programs(build=tmp_path / "build", store=tmp_path / "programs")


@pytest.fixture
def enforcer(programs: Programs, tmp_path: Path) -> Enforcer:
    return Enforcer(programs, tmp_path / "host")


def folder_of(enforcer: Enforcer, spec: ContainerSpec) -> Path:
    return enforcer.folders.path((spec.session, spec.attempt))


def lines_of(enforcer: Enforcer, spec: ContainerSpec) -> list[str]:
    return (folder_of(enforcer, spec) / "limits.conf").read_text().splitlines()


def mounted(enforcer: Enforcer, spec: ContainerSpec) -> dict[str, bool]:
    """Return {path in the container: whether it is writable}."""
    return {mount.target: not mount.read_only for mount in enforcer.prepare(spec).mounts}


HOOK_MOUNTS = {
    "/run/fgpu/limits.conf": False,
    "/run/fgpu/region": True,
    "/usr/local/lib/libfgpu.so": False,
    "/etc/ld.so.preload": False,
}


ARBITER_MOUNTS = {"/run/fgpu/grant": False, "/run/fgpu/arbiter": False}


def test_share_of_real_gpu_mounts_only_the_hook(enforcer: Enforcer) -> None:
    spec = spec_of(grant(is_simulated=False))
    assert mounted(enforcer, spec) == HOOK_MOUNTS
    folder = folder_of(enforcer, spec)
    assert lines_of(enforcer, spec)[4].startswith(f"dev={UUIDS[0]} mem_bytes={2 * GIB} sm_percent=25.00 phase_ms=0 ")
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert modes == {"limits.conf": 0o444, "region": 0o666, "by-driver.json": 0o444}
    assert (folder / "region").stat().st_size == REGION_BYTES


def test_simulated_gpu_mounts_driver_and_shared_state(enforcer: Enforcer) -> None:
    one, other = (enforcer.prepare(spec_of(grant())).mounts for _ in range(2))
    assert HOOK_MOUNTS.keys() < {mount.target for mount in one}
    (first,) = (mount for mount in one if mount.target == "/run/fgpu-sim/state")
    assert first in other
    assert not first.read_only
    libraries = {mount.target: mount.source.read_text() for mount in one if mount.target.endswith(".so.1")}
    assert libraries["/usr/lib/x86_64-linux-gnu/libcuda.so.1"] == "content of sim/libcuda.so.1"
    assert libraries["/usr/lib64/libnvidia-ml.so.1"] == f"content of {NVML}"


def test_limits_carry_sharing_mode_and_pinned_memory_bound(enforcer: Enforcer) -> None:
    spec = replace(spec_of(grant()), sharing=Sharing.BURST)
    enforcer.prepare(spec)
    assert lines_of(enforcer, spec)[2:4] == ["sharing=burst", f"pinned_bytes={spec.memory_bytes}"]
    enforcer.prepare(replace(spec, sharing=Sharing.CAP))  # by a later worker, after the group has changed
    assert lines_of(enforcer, spec)[2] == "sharing=burst"


def test_a_whole_gpu_brings_no_hook(enforcer: Enforcer) -> None:
    real = spec_of(grant(milli=2000, tier=Tier.WHOLE, is_simulated=False))
    assert enforcer.prepare(real).mounts == ()
    assert not enforcer.applies_to((real.session, real.attempt))
    simulated = mounted(enforcer, spec_of(grant(milli=2000, tier=Tier.WHOLE)))
    assert simulated
    assert not HOOK_MOUNTS.keys() & simulated.keys()


def test_without_a_gpu_nothing_is_mounted(enforcer: Enforcer) -> None:
    assert enforcer.prepare(spec_of()).mounts == ()
    assert enforcer.folders.keys() == set()


def test_a_second_preparation_leaves_the_files_that_processes_have_mapped(enforcer: Enforcer) -> None:
    before = spec_of(grant())
    enforcer.prepare(before)
    spec = spec_of(grant(), grant(1, 2000))
    enforcer.prepare(spec)
    (folder_of(enforcer, spec) / "region").write_bytes(b"\1" * REGION_BYTES)
    inodes = {path.name: path.stat().st_ino for path in folder_of(enforcer, spec).iterdir()}
    enforcer.folders.discard((before.session, before.attempt))  # another turn would be free now
    enforcer.prepare(spec)
    assert {path.name: path.stat().st_ino for path in folder_of(enforcer, spec).iterdir()} == inodes


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "region").write_bytes(b""),
        lambda folder: (folder / "region").unlink(),
        lambda folder: (folder / "limits.conf").unlink(),
        lambda folder: (folder / "limits.conf").write_text(""),
    ],
)
def test_what_a_dying_worker_left_half_done_is_completed(enforcer: Enforcer, damage: Callable[[Path], object]) -> None:
    spec = spec_of(grant())
    enforcer.prepare(spec)
    whole = {path.name: path.read_bytes() for path in folder_of(enforcer, spec).iterdir()}
    damage(folder_of(enforcer, spec))
    enforcer.prepare(spec)
    assert {path.name: path.read_bytes() for path in folder_of(enforcer, spec).iterdir()} == whole


def test_the_turns_of_sessions_on_one_gpu_do_not_overlap(enforcer: Enforcer) -> None:
    specs = [spec_of(grant(milli=milli)) for milli in (500, 1000, 500)]
    for spec in specs:
        enforcer.prepare(spec)
    elsewhere = spec_of(grant(1))
    enforcer.prepare(elsewhere)
    starts = [lines_of(enforcer, spec)[4].split("phase_ms=")[1].split()[0] for spec in (*specs, elsewhere)]
    assert starts == ["0", "25", "75", "0"]


def test_new_build_leaves_libraries_of_running_sessions(enforcer: Enforcer, programs: Programs) -> None:
    old = programs.installed() / HOOK
    (programs.build / HOOK).write_text("a newer one")
    new = programs.installed() / HOOK
    assert (old.read_text(), new.read_text()) == (f"content of {HOOK}", "a newer one")
    assert programs.hook_inodes() == {old.stat().st_ino, new.stat().st_ino}


def test_missing_library_refuses_shares_but_not_whole_gpus(enforcer: Enforcer, programs: Programs) -> None:
    (programs.build / HOOK).unlink()
    assert "`make fgpu` builds it" in enforcer.problem()
    with pytest.raises(EnforcementError, match=r"cannot divide a GPU: .*libfgpu\.so is missing"):
        enforcer.prepare(spec_of(grant(is_simulated=False)))
    enforcer.prepare(spec_of(grant(milli=2000, tier=Tier.WHOLE, is_simulated=False)))


def test_a_worker_that_is_not_root_divides_no_gpu(enforcer: Enforcer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(EnforcementError, match="its worker does not run as root"):
        enforcer.prepare(spec_of(grant(is_simulated=False)))


def test_a_gpu_of_a_host_that_divides_none_is_refused(enforcer: Enforcer) -> None:
    with pytest.raises(EnforcementError, match="start the worker anew"):
        enforcer.prepare(spec_of(grant(tier=Tier.NONE)))


def test_mps_needs_a_folder_and_gets_the_share_as_percentage(programs: Programs, tmp_path: Path) -> None:
    spec = spec_of(grant(milli=1000, tier=Tier.HOOK_MPS, is_simulated=False))
    with pytest.raises(EnforcementError, match="names no MPS folder"):
        Enforcer(programs, tmp_path / "host").prepare(spec)
    setup = Enforcer(programs, tmp_path / "host", mps_folder=tmp_path).prepare(spec)
    assert setup.environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50.00"
    assert setup.mounts[-1].source == tmp_path
    assert not setup.mounts[-1].read_only
    (tmp_path / "shm").mkdir()
    pipes, shared = Enforcer(programs, tmp_path / "host", mps_folder=tmp_path).prepare(spec).mounts[-2:]
    assert (pipes.source, shared.source) == (tmp_path, tmp_path / "shm")
    assert (shared.target, shared.read_only) == ("/dev/shm", False)


def test_kernel_tier_stores_driver_limits_for_the_start(enforcer: Enforcer) -> None:
    spec = spec_of(grant(tier=Tier.KERNEL, is_simulated=False), grant(1, tier=Tier.HOOK, is_simulated=False))
    enforcer.prepare(spec)
    assert json.loads((folder_of(enforcer, spec) / "by-driver.json").read_text()) == {UUIDS[0]: 2 * GIB}


def test_session_folders_are_listed_until_discarded(enforcer: Enforcer) -> None:
    spec = spec_of(grant())
    enforcer.prepare(spec)
    enforcer.prepare(replace(spec, attempt=2))
    assert enforcer.folders.keys() == {(spec.session, 1), (spec.session, 2)}
    enforcer.folders.discard((spec.session, 1))
    enforcer.folders.discard((spec.session, 1))
    assert enforcer.folders.keys() == {(spec.session, 2)}


@pytest.fixture
def arbitrated(programs: Programs, tmp_path: Path) -> Enforcer:
    """An enforcer whose arbiter is not built."""
    arbiter = Arbiter(programs, ArbiterFolder(tmp_path / "arbiter"))
    return Enforcer(programs, tmp_path / "host", arbiter=arbiter)


def test_a_session_with_a_part_of_a_gpu_gets_turns(arbitrated: Enforcer) -> None:
    spec = replace(spec_of(grant(), grant(1, 2000)), sharing=Sharing.BURST)
    mounts = mounted(arbitrated, spec)
    assert {path: mounts[path] for path in ARBITER_MOUNTS} == ARBITER_MOUNTS
    assert arbitrated.keys() == {(spec.session, spec.attempt)}
    assert arbitrated.arbiter
    folder = arbitrated.arbiter.folder.root / f"{spec.session}-{spec.attempt}"
    assert (folder / "lease.conf").read_text().splitlines() == lines_of(arbitrated, spec)
    arbitrated.discard((spec.session, spec.attempt))
    assert arbitrated.keys() == set()


@pytest.mark.parametrize("gpus", [(), (grant(0, 2000, Tier.WHOLE),), (grant(tier=Tier.HOOK_MPS, is_simulated=False),)])
def test_a_session_that_no_gate_holds_gets_none(arbitrated: Enforcer, gpus: tuple[GpuGrant, ...]) -> None:
    arbitrated._mps_folder = Path("/mps")
    assert not ARBITER_MOUNTS.keys() & mounted(arbitrated, spec_of(*gpus)).keys()


def test_session_starts_without_arbiter_folder(
    arbitrated: Enforcer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "arbiter").mkdir()
    (tmp_path / "arbiter").chmod(0o777)  # anybody's
    assert mounted(arbitrated, spec_of(grant())).keys() >= HOOK_MOUNTS.keys()
    assert "gets no turns on its GPUs, only its share" in caplog.text
