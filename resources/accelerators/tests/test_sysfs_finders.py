"""What is found of AMD's and Intel's devices in trees as their drivers make them, and in such as nobody should."""

import os
from pathlib import Path

import pytest

from resources.accelerators import amd, intel, sysfs
from resources.accelerators.devices import ContainerEdits, DeviceNode
from resources.accelerators.discovery import AcceleratorSource
from resources.accelerators.tests.trees import GIB, amd_gpu, pci, write

CARD = "sys/class/drm/renderD128/device"


def test_whole_amd_gpus_by_their_serial_numbers(tmp_path: Path) -> None:
    write(tmp_path, {"sys/class/kfd/kfd/topology/nodes/0/properties": "cpu_cores_count 64\nsimd_count 0"})
    amd_gpu(tmp_path, 1, 128, 0xABC)
    amd_gpu(tmp_path, 10, 129, 0xDEF, gfx_target_version=110002, device_id=0x744C)
    write(tmp_path, {f"{CARD}/product_name": "AMD Instinct MI210", f"{CARD}/current_compute_partition": "SPX"})
    os.chown(tmp_path / "dev/dri/renderD128", -1, 109)
    first, second = amd.find(tmp_path)
    assert (first.uid, first.model, first.memory_bytes) == ("AMD-0000000000000abc", "AMD Instinct MI210", 64 * GIB)
    assert first.edits == ContainerEdits(
        nodes=(DeviceNode("/dev/kfd", "/dev/kfd"), DeviceNode("/dev/dri/renderD128", "/dev/dri/renderD128")),
        groups=(109,),
    )
    assert (second.model, second.problem) == ("AMD gfx1102 (744c)", "")


def test_partitions_of_an_amd_gpu_are_devices(tmp_path: Path) -> None:
    for part in range(3):
        amd_gpu(tmp_path, part + 1, 128 + part, 7, memory=24 * GIB)
    amd_gpu(tmp_path, 4, 140, 8)
    write(tmp_path, {f"{CARD}/product_name": "MI300X", f"{CARD}/current_compute_partition": "CPX"})
    write(tmp_path, {f"{CARD}/current_memory_partition": "NPS4"})
    *parts, other = amd.find(tmp_path)
    assert [part.uid for part in parts] == [f"AMD-{7:016x}-{number}" for number in range(3)]
    assert {part.model for part in parts} == {"MI300X CPX/NPS4"}
    assert other.uid == f"AMD-{8:016x}"


def test_an_amd_gpu_with_errors_is_not_lent(tmp_path: Path) -> None:
    amd_gpu(tmp_path, 1, 128, 1)
    amd_gpu(tmp_path, 2, 129, 2)
    write(tmp_path, {f"{CARD}/ras/gfx_err_count": "ue: 0\nce: 4", f"{CARD}/ras/umc_err_count": "ue: 3\nce: 9"})
    (tmp_path / "dev/dri/renderD129").unlink()
    assert AcceleratorSource(host_name="h", root=tmp_path).find().problems == (
        "amd.com/gpu=renderD128 is not lent: it has 3 uncorrectable errors (umc); reset it.",
        "amd.com/gpu=renderD129 is not lent: /dev/dri/renderD129 is missing.",
    )


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"tile0/physical_vram_size_bytes": 8 * GIB, "tile1/physical_vram_size_bytes": 8 * GIB}, 16 * GIB),
        ({"resource": "0x0 0x0 0x0\n0x0 0x0 0x0\n0x4000000000 0x43ffffffff 0x14220c"}, 16 * GIB),
    ],
)
def test_intel_gpus_by_what_their_driver_says(tmp_path: Path, files: dict[str, object], expected: int) -> None:
    said = {"device": "0x56c0", "drm/renderD128/dev": "226:128", **files}
    pci(tmp_path, "0000:3a:00.0", said, "xe", "sys/class/drm/card0/device")
    write(tmp_path, {"dev/dri/renderD128": ""})
    (gpu,) = intel.find(tmp_path)
    assert (gpu.name, gpu.model, gpu.memory_bytes) == ("0000:3a:00.0", "Intel GPU 56c0 (xe)", expected)
    assert (gpu.problem, gpu.uid) == ("", "")


def test_graphics_of_an_intel_processor_are_not_lent(tmp_path: Path) -> None:
    said: dict[str, object] = {"drm/renderD128/dev": "", "resource": "0x0 0x0 0x0\n0x0 0x0 0x0\n0x1000 0x1fff 0x1"}
    pci(tmp_path, "0000:00:02.0", said, "i915", "sys/class/drm/card0/device")
    assert not [*intel.find(tmp_path)]


def test_virtual_functions_are_lent_in_place_of_their_gpu(tmp_path: Path) -> None:
    for number, functions in enumerate((1, 0)):
        said: dict[str, object] = {f"drm/renderD{128 + number}/dev": "", "sriov_numvfs": functions}
        pci(tmp_path, f"0000:03:00.{number}", said, "i915", f"sys/class/drm/card{number}/device")
        write(tmp_path, {f"dev/dri/renderD{128 + number}": "", f"sys/class/drm/card{number}/lmem_total_bytes": GIB})
    whole, function = intel.find(tmp_path)
    assert "cut into 1 virtual functions" in whole.problem
    assert function.problem == ""


def test_gaudi_by_its_driver(tmp_path: Path) -> None:
    for number, status in enumerate(("Operational", "In device reset")):
        said: dict[str, object] = {"vendor": "0x1da3", "device_type": "GAUDI2", "status": status}
        pci(tmp_path, f"0000:1{number}:00.0", said, "habanalabs", f"sys/class/accel/accel{number}/device")
        write(tmp_path, {f"dev/accel/accel{number}": "", f"dev/accel/accel_controlD{number}": ""})
    pci(tmp_path, "0000:20:00.0", {"vendor": "0x8086"}, "intel_vpu", "sys/class/accel/accel2/device")
    first, second = intel.find(tmp_path)
    assert (first.kind, first.model, first.memory_bytes) == ("intel.com/gaudi", "Intel GAUDI2", 96 * GIB)
    assert second.problem == "its driver says In device reset"


def test_hostile_trees_are_sentences(tmp_path: Path) -> None:
    amd_gpu(tmp_path, 1, 128, 5)
    amd_gpu(tmp_path, 2, 129, 5)  # the same device again, in no mode that cuts it
    amd_gpu(tmp_path, 3, 130, 6, memory=1 << 63)
    nodes = tmp_path / "sys/class/kfd/kfd/topology/nodes"
    write(
        nodes,
        {"4/properties": "\0\xff" * 9000, "5/properties": "simd_count 1\ndrm_render_minor 9e9", "x/properties": ""},
    )
    os.mkfifo(nodes / "fifo")
    (nodes / "6").mkdir()
    os.mkfifo(nodes / "6/properties")  # reading it would wait for ever
    (nodes / "7").symlink_to(nodes / "7")
    found = AcceleratorSource(host_name="h", root=tmp_path).find()
    assert [each.name for each in found.accelerators] == ["renderD128"]
    same, size = found.problems
    assert same == "amd.com/gpu=renderD129 is not lent: amd.com/gpu=renderD128 is the same device."
    assert "says that it has 9223372036854775808 bytes" in size


def test_numbers_and_folders_are_bounded(tmp_path: Path) -> None:
    write(tmp_path, {"big": 1 << 64, "hex": "0xff", "word": "12x", **{f"many/{number}": "" for number in range(1100)}})
    assert [sysfs.number(tmp_path / name) for name in ("big", "hex", "word", "none")] == [0, 255, 0, 0]
    assert len([*sysfs.entries(tmp_path / "many", "[0-9]+")]) == sysfs.MAX_ENTRIES
