"""A bound on what a container writes is asked of an engine that reports quotas, and not again once refused."""

from pathlib import Path

import pytest

from hostworker.runtime.docker.disks import DockerDisks
from hostworker.runtime.docker.quotas import quota_problem, storage_root
from hostworker.runtime.tests.runtime_worlds import DockerWorld, make_spec, runtime_of, tiny_world
from hostworker.runtime_protocol import Runtime
from resources import procfs
from resources.amounts.units import GIB

MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 254:1 / /var/lib/docker rw,relatime - xfs /dev/vdb rw,attr2,inode64,{quota}
31 22 254:2 / /srv rw,relatime shared:7 - xfs /dev/vdc rw,noquota
"""
XFS = [["Backing Filesystem", "xfs"], ["Supports d_type", "true"]]
INFO = {"Driver": "overlay2", "DriverStatus": XFS, "DockerRootDir": "/var/lib/docker"}

world = pytest.fixture(tiny_world)
runtime = pytest.fixture(runtime_of)


@pytest.mark.parametrize(
    ("changes", "quota", "is_here", "problem"),
    [
        ({}, "prjquota", True, ""),
        ({}, "noquota", True, "/var/lib/docker is not mounted with pquota"),
        ({"DockerRootDir": "/srv/docker"}, "prjquota", True, "/srv/docker is not mounted with pquota"),
        ({}, "noquota", False, ""),  # the engine's own refusal tells
        ({"DriverStatus": [["Backing Filesystem", "extfs"]]}, "prjquota", True, "overlay2 on extfs"),
        ({"Driver": "vfs", "DriverStatus": None}, "prjquota", True, "vfs on None"),
        ({"Driver": "overlayfs"}, "prjquota", True, "overlayfs on xfs"),
    ],
)
def test_what_the_engine_reports_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], quota: str, is_here: bool, problem: str
) -> None:
    monkeypatch.setattr(procfs, "PROC", tmp_path)
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mountinfo").write_text(MOUNTS.format(quota=quota))
    found = quota_problem(INFO | changes, is_here=is_here)
    assert problem in found
    assert bool(found) == bool(problem)


def test_what_containerd_keeps_is_measured_there(tmp_path: Path) -> None:
    snapshots = {"DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]]}
    assert storage_root(INFO | snapshots, tmp_path) == tmp_path
    assert storage_root(INFO | snapshots, tmp_path / "absent") == Path("/var/lib/docker")  # a containerd of its own
    assert storage_root(INFO, tmp_path) == Path("/var/lib/docker")


@pytest.mark.docker
def test_a_refused_quota_is_not_asked_for_again(
    world: DockerWorld, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine of this machine has none, and says so itself."""
    refusals: list[str] = []
    is_quota_refused = DockerDisks.is_quota_refused

    def note(disks: DockerDisks, message: str) -> bool:
        refusals.append(message)
        return is_quota_refused(disks, message)

    monkeypatch.setattr("hostworker.runtime.docker.disks.quota_problem", lambda *_, **__: "")
    monkeypatch.setattr(DockerDisks, "is_quota_refused", note)
    for _ in range(2):
        assert runtime.create(make_spec(world.image, disk_bytes=GIB))
    assert len(refusals) <= 1  # none where the engine has quotas
