"""What a machine is found to have, with and without an NVIDIA driver."""

import os
from types import SimpleNamespace

import pynvml
import pytest

from fgpu.simulated import DRIVER as SIMULATED_DRIVER
from resources.amounts.units import GIB, MIB
from resources.gpus import discovery
from resources.gpus import memory as gpu_memory
from resources.gpus.discovery import Device, has_nvidia_gpu, nvml_devices, simulated_devices, this_machine


class FakeDriver:
    """The part of NVML that is used, with two GPUs of which some may be broken, or no driver at all."""

    NVMLError = pynvml.NVMLError

    nvmlMemory_v2 = pynvml.nvmlMemory_v2
    NVMLError_FunctionNotFound = pynvml.NVMLError_FunctionNotFound
    NVMLError_NotSupported = pynvml.NVMLError_NotSupported

    def __init__(self, *, is_there: bool = True, broken: tuple[int, ...] = (), is_old: bool = False) -> None:
        self.is_there = is_there
        self.is_old = is_old
        self.broken = broken
        self.open = 0

    def nvmlInit(self) -> None:
        if not self.is_there:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        if self.broken:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)
        return "580.159.04"

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index in self.broken:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "NVIDIA H100"

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def nvmlDeviceGetMemoryInfo(self, handle: int, version: int | None = None) -> SimpleNamespace:
        if version and self.is_old:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        reserved = {"reserved": 600 * MIB} if version else {}
        return SimpleNamespace(total=80 * GIB, free=GIB, used=79 * GIB, **reserved)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    return install(monkeypatch, FakeDriver())


def install(monkeypatch: pytest.MonkeyPatch, driver: FakeDriver) -> FakeDriver:
    monkeypatch.setattr(discovery, "pynvml", driver)
    monkeypatch.setattr(gpu_memory, "pynvml", driver)
    return driver


def test_gpus_are_listed_in_the_drivers_order(driver: FakeDriver) -> None:
    assert nvml_devices() == (
        Device(uuid="GPU-0", index=0, name="NVIDIA H100", memory=80 * GIB - 600 * MIB),
        Device(uuid="GPU-1", index=1, name="NVIDIA H100", memory=80 * GIB - 600 * MIB),
    )
    assert driver.open == 0


def test_what_is_lent_is_neither_reserved_nor_a_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeDriver())
    machine = this_machine(host_name="a", simulated="", context_bytes=512 * MIB)
    assert [device.memory for device in machine.devices] == [80 * GIB - 1112 * MIB] * 2
    install(monkeypatch, FakeDriver(is_old=True))  # does not say what it reserves
    assert [device.memory for device in nvml_devices(context_bytes=512 * MIB)] == [80 * GIB - 512 * MIB] * 2


def test_at_most_a_sixteenth_of_a_device_is_reserved() -> None:
    memory = gpu_memory.DeviceMemory(total_bytes=4 * GIB + 5, reserved_bytes=0, used_bytes=0)
    assert memory.allocatable_bytes(GIB) == 4 * GIB - 256 * MIB


def test_the_drivers_version_is_known_where_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for driver, simulated, version in (
        (FakeDriver(), "", "580.159.04"),
        (FakeDriver(broken=(0,)), "", ""),
        (FakeDriver(is_there=False), "", ""),
        (FakeDriver(is_there=False), "1x8GiB", SIMULATED_DRIVER),
    ):
        install(monkeypatch, driver)
        assert this_machine(host_name="a", simulated=simulated).driver == version
        assert driver.open == 0


def test_a_driver_with_gpus_is_found(driver: FakeDriver) -> None:
    assert has_nvidia_gpu()
    assert driver.open == 0


def test_without_a_driver_there_are_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeDriver(is_there=False))
    assert not has_nvidia_gpu()
    assert nvml_devices() == ()


def test_a_broken_gpu_is_left_out(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    driver = install(monkeypatch, FakeDriver(broken=(0,)))
    assert [(device.uuid, device.index) for device in nvml_devices()] == [("GPU-1", 1)]
    assert "GPU 0 does not respond" in caplog.text
    assert driver.open == 0


def test_simulated_gpus_are_numbered_through_and_labelled() -> None:
    devices = simulated_devices(" 2x8GiB, 1 X 512m ,", "alpha")
    assert [(device.index, device.memory) for device in devices] == [(0, 8 * GIB), (1, 8 * GIB), (2, 512 * MIB)]
    assert all(device.is_simulated for device in devices)
    assert len({device.uuid for device in devices}) == 3


def test_simulated_uuids_are_stable_and_unique_per_host() -> None:
    (first,) = simulated_devices("1x8GiB", "alpha")
    assert simulated_devices("2x8GiB", "alpha")[0] == first
    assert simulated_devices("1x8GiB", "beta")[0].uuid != first.uuid


@pytest.mark.parametrize("text", ["", "  ", ","])
def test_nothing_declared_is_nothing_simulated(text: str) -> None:
    assert simulated_devices(text, "alpha") == ()


@pytest.mark.parametrize(
    "text", ["8GiB", "0x8GiB", "-1x8GiB", "100x8GiB", "1x", "x8GiB", "1x0", "1x8parsecs", "1x8GiB;1x8GiB", "1x-8GiB"]
)
def test_a_malformed_declaration_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ValueError, match=r"size|simulated"):
        simulated_devices(text, "alpha")


def test_real_gpus_win_over_simulated_ones(driver: FakeDriver) -> None:
    assert [device.uuid for device in this_machine(host_name="a", simulated="1x8GiB").devices] == ["GPU-0", "GPU-1"]
    driver.is_there = False
    (simulated,) = this_machine(host_name="a", simulated="1x8GiB").devices
    assert simulated.is_simulated


@pytest.mark.usefixtures("driver")
def test_a_machine_offers_all_or_the_configured_amounts() -> None:
    everything = this_machine(host_name="a", simulated="")
    assert everything.cpu == len(os.sched_getaffinity(0))
    assert everything.memory > GIB // 4
    part = this_machine(host_name="a", simulated="", cpu=1, memory="200m")
    assert (part.cpu, part.memory) == (1, 200 * MIB)
    assert this_machine(host_name="a", simulated="", cpu=10**6, memory="1000t") == everything


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("amounts", [{"memory": "much"}, {"cpu": -1}])
def test_amounts_that_make_no_sense_are_refused(amounts: dict[str, int | str]) -> None:
    with pytest.raises(ValueError, match=r"size|cores"):
        this_machine(host_name="a", simulated="", **amounts)  # type: ignore[arg-type]


def test_a_host_lends_the_gpus_that_are_named(caplog: pytest.LogCaptureFixture) -> None:
    first, second = simulated_devices("2x8GiB", "here")
    machine = this_machine(host_name="here", simulated="2x8GiB", gpus=[second.uuid, "GPU-gone"])
    assert machine.devices == (second,)
    assert "GPU-gone not found" in caplog.text
    assert this_machine(host_name="here", simulated="2x8GiB").devices == (first, second)
    assert this_machine(host_name="here", simulated="2x8GiB", gpus=["1"]).devices == (second,)
    assert this_machine(host_name="here", simulated="2x8GiB", gpus=["none"]).devices == ()
