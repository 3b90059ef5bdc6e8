"""How an engine is asked for GPUs, by what it says of itself; NVML, /dev and /proc are played by stand-ins."""

import json
import os
from pathlib import Path
from typing import Any

import pynvml
import pytest

from hostworker.runtime import gpu_access
from hostworker.runtime.gpu_access import LEGACY, GpuAccess, cdi_devices, choose
from resources.accelerators.cdi_files import FILE_BYTES, MAX_FILES

ONE, OTHER = "GPU-00000000-0000-4000-8000-000000000001", "GPU-00000000-0000-4000-8000-000000000002"
MIG = "MIG-00000000-0000-4000-8000-000000000003"
SPEC = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/gpu",
    "devices": [{"name": "0", "containerEdits": {}}, {"name": ONE, "containerEdits": {}}],
}
YAML = f"""---
cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: "0"
- containerEdits: {{}}
  name: {ONE}
kind: nvidia.com/gpu
"""


@pytest.mark.parametrize(
    ("name", "text"), [("nvidia.yaml", YAML), ("nvidia.json", json.dumps(SPEC, indent=1)), ("n.json", json.dumps(SPEC))]
)
def test_engine_from_25_uses_cdi_where_its_folders_have_it(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / "other.json").write_text(json.dumps(SPEC | {"kind": "vendor.com/net", "devices": [{"name": OTHER}]}))
    info = {"CDISpecDirs": [str(tmp_path), "/nonexistent"]}
    assert choose(info, [ONE]) == GpuAccess(uses_cdi=True)
    assert choose(info, [ONE, OTHER]) == LEGACY


def test_pipes_and_huge_files_of_engines_are_passed_over(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.json")
    (tmp_path / "b.json").mkdir()
    (tmp_path / "huge.yaml").write_text(YAML.replace(ONE, OTHER) + "#" * FILE_BYTES)
    (tmp_path / "nvidia.yaml").write_text(YAML)
    info = {"CDISpecDirs": [str(tmp_path)]}
    assert cdi_devices(info) == {"nvidia.com/gpu=0", f"nvidia.com/gpu={ONE}"}
    for number in range(MAX_FILES):
        (tmp_path / f"x{number}.json").write_text(json.dumps(SPEC | {"devices": [{"name": f"n{number}"}]}))
    assert len(cdi_devices(info)) < MAX_FILES + 2


def test_an_engine_that_lists_its_devices_is_believed() -> None:
    info = {"CDISpecDirs": ["/etc/cdi"], "DiscoveredDevices": [{"Source": "cdi", "ID": f"nvidia.com/gpu={ONE}"}]}
    assert cdi_devices(info) == {f"nvidia.com/gpu={ONE}"}
    assert choose(info, [ONE]).uses_cdi
    assert not choose(info, [OTHER]).uses_cdi


@pytest.mark.parametrize("info", [{}, {"CDISpecDirs": None}, {"CDISpecDirs": [], "CgroupDriver": "cgroupfs"}])
def test_other_engines_are_asked_by_the_legacy_request(info: dict[str, Any]) -> None:
    assert choose(info, [ONE]) == LEGACY


def test_where_systemd_keeps_cgroups_the_devices_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "nvidiactl",
        "nvidia-uvm",
        "nvidia0",
        "nvidia1",
        "nvidia-caps/nvidia-cap30",
        "nvidia-caps/nvidia-cap31",
    ):
        (tmp_path / "dev" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "dev" / name).touch()
    for folder, minor in (("gi3", 30), ("gi3/ci0", 31)):
        access = tmp_path / "gpu1/mig" / folder / "access"
        access.parent.mkdir(parents=True)
        access.write_text(f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
    answers = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
        "nvmlDeviceIsMigDeviceHandle": lambda handle: handle == MIG,
        "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": lambda handle: OTHER,
        "nvmlDeviceGetMinorNumber": lambda handle: {ONE: 0, OTHER: 1}[handle],
        "nvmlDeviceGetGpuInstanceId": lambda handle: 3,
        "nvmlDeviceGetComputeInstanceId": lambda handle: 0,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(pynvml, name, answer)
    monkeypatch.setattr(gpu_access, "CAPABILITIES", tmp_path)
    nodes = choose({"CgroupDriver": "systemd"}, [ONE, MIG], tmp_path / "dev").device_nodes
    assert nodes == tuple(
        f"/dev/{name}"
        for name in (
            *("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1"),
            *("nvidia-caps/nvidia-cap30", "nvidia-caps/nvidia-cap31"),
        )
    )


def test_without_nvml_no_nodes_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", fail)
    assert choose({"CgroupDriver": "systemd"}, [ONE]) == LEGACY
