"""Which tier a GPU offers and a session gets, on drivers of every kind; NVML is played by a stand-in."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from resources.amounts.units import GIB
from resources.gpus import tiers
from resources.gpus.discovery import Device, Machine, nvml_devices, simulated_devices, this_machine
from resources.gpus.tiers import Tier, share_tiers
from resources.hosts.services import register_host
from resources.models import Gpu
from tests.factories import make_group

NO_SUCH_FUNCTION = pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
NOT_SUPPORTED = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
NOT_FOUND = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)


def answering(answer: Any) -> Callable[..., Any]:
    """Return a function of NVML that returns or raises this."""

    def function(*arguments: object) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return function


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """A driver with one GPU, on a host with cgroup v2; call it to change results."""

    def change(**answers: Any) -> None:
        for name, answer in answers.items():
            monkeypatch.setattr(pynvml, name, answer if callable(answer) else answering(answer))

    change(
        nvmlInit=None,
        nvmlShutdown=None,
        nvmlDeviceGetCount=1,
        nvmlDeviceGetHandleByIndex="GPU-1",
        nvmlDeviceGetUUID=lambda handle: handle,
        nvmlDeviceGetName="H200",
        nvmlDeviceGetMemoryInfo=lambda handle, version=None: SimpleNamespace(total=8 * GIB, reserved=0, used=0),
        nvmlDeviceGetMigMode=NOT_SUPPORTED,
        nvmlDeviceGetMemoryLimits_v1=NO_SUCH_FUNCTION,
    )
    (tmp_path / "cgroup.controllers").touch()
    monkeypatch.setattr(tiers, "CGROUP2", tmp_path / "cgroup.controllers")
    return change


@pytest.mark.parametrize(
    ("answer", "tier"), [(None, Tier.KERNEL), (NO_SUCH_FUNCTION, Tier.HOOK), (NOT_SUPPORTED, Tier.HOOK)]
)
def test_the_driver_limits_memory_where_it_offers_to(driver: Callable[..., None], answer: Any, tier: Tier) -> None:
    driver(nvmlDeviceGetMemoryLimits_v1=answer)
    assert [device.tier for device in nvml_devices()] == [tier]


def test_with_the_old_cgroups_the_driver_limits_nothing(driver: Callable[..., None], tmp_path: Path) -> None:
    driver(nvmlDeviceGetMemoryLimits_v1=None)
    (tmp_path / "cgroup.controllers").unlink()
    assert [device.tier for device in nvml_devices()] == [Tier.HOOK]


def test_a_host_without_the_hook_divides_nothing(driver: Callable[..., None]) -> None:
    driver(nvmlDeviceGetMemoryLimits_v1=None)
    assert [device.tier for device in nvml_devices(can_hook=False)] == [Tier.NONE]
    assert this_machine(host_name="here", simulated="", can_hook=False).devices[0].tier == Tier.NONE
    assert simulated_devices("1x8GiB", "here", can_hook=False)[0].tier == Tier.NONE


def test_mig_instances_replace_their_gpu(driver: Callable[..., None]) -> None:
    instances = {0: "MIG-a", 1: NOT_FOUND, 2: "MIG-b"}

    def instance(_: Any, index: int) -> Any:
        return answering(instances[index])()

    driver(
        nvmlDeviceGetMigMode=[pynvml.NVML_DEVICE_MIG_ENABLE, pynvml.NVML_DEVICE_MIG_ENABLE],
        nvmlDeviceGetMaxMigDeviceCount=3,
        nvmlDeviceGetMigDeviceHandleByIndex=instance,
    )
    assert [(device.uuid, device.index, device.tier) for device in nvml_devices()] == [
        ("MIG-a", 0, Tier.MIG),
        ("MIG-b", 0, Tier.MIG),
    ]
    assert [device.tier for device in nvml_devices(can_hook=False)] == [Tier.NONE, Tier.NONE]


@pytest.mark.parametrize(
    ("parts", "tiers"),
    [
        ([(2000, "hook")], [Tier.WHOLE]),
        ([(2000, "kernel"), (2000, "none")], [Tier.WHOLE, Tier.WHOLE]),
        ([(2000, "mig")], [Tier.MIG]),
        ([(1990, "mig")], [Tier.HOOK]),
        ([(500, "hook")], [Tier.HOOK]),
        ([(2000, "hook"), (10, "kernel")], [Tier.HOOK, Tier.KERNEL]),
        ([(500, "none")], [Tier.NONE]),
        ([], []),
    ],
)
def test_whole_tier_needs_all_gpus_whole(parts: list[tuple[int, str]], tiers: list[Tier]) -> None:
    assert share_tiers(parts, 2000) == tiers


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("uses_mps", "has_mps", "tier", "is_simulated", "stored"),
    [
        (True, True, Tier.HOOK, False, "hook+mps"),
        (False, True, Tier.HOOK, False, "hook"),
        (True, False, Tier.HOOK, False, "hook"),
        (True, True, Tier.HOOK, True, "hook"),
        (True, True, Tier.KERNEL, False, "kernel"),
    ],
)
def test_mps_needs_both_group_and_host(
    uses_mps: bool, has_mps: bool, tier: Tier, is_simulated: bool, stored: str
) -> None:
    group = make_group(use_mps=uses_mps)
    device = Device(uuid="GPU-1", index=0, name="H200", memory=8 * GIB, is_simulated=is_simulated, tier=tier)
    register_host("here", Machine(cpu=1, memory=GIB, devices=(device,)), group.name, has_mps=has_mps)
    assert Gpu.objects.get().tier == stored


def test_too_many_simulated_gpus_are_refused() -> None:
    assert len(simulated_devices("16x8GiB", "here")) == 16
    with pytest.raises(ValueError, match="declares 17 simulated GPUs; a host can have 16"):
        simulated_devices("16x8GiB,1x1GiB", "here")
