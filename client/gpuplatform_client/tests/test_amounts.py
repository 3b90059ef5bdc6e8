"""What the command line says of amounts."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from gpuplatform_client.cli.amounts import resources_text
from gpuplatform_client.cli.spec_files import rooms_text
from gpuplatform_client.models.platform import ComputeSession, GpuRoomInfo

NAMES = dict.fromkeys(("id", "name", "owner", "status", "image", "resource_group"), "a")
SESSION: dict[str, Any] = {**NAMES, "cpu": 4, "memory": 2**30, "created_at": datetime(2026, 1, 1, tzinfo=UTC)}


@pytest.mark.parametrize(
    ("milli", "text"), [(None, "4 CPU, 1 GiB"), (4000, "4 CPU, 1 GiB"), (1500, "4 CPU (1.5 guaranteed), 1 GiB")]
)
def test_a_part_that_is_guaranteed_is_named(milli: int | None, text: str) -> None:
    assert resources_text(ComputeSession(**SESSION, cpu_guaranteed_milli=milli)) == text


def test_gpu_memory_is_named_with_its_share() -> None:
    session = ComputeSession(**SESSION, fgpu=Decimal("0.3"), gpu_memory=12 * 2**30)
    assert resources_text(session) == "4 CPU, 1 GiB, 0.3 fGPU for 12 GiB of GPU memory"


def test_the_room_for_gpu_memory_is_told_for_each_model() -> None:
    rooms = [
        GpuRoomInfo(resource_group="lab", gpu_model="A100", fgpu=Decimal("0.15"), fits=3),
        GpuRoomInfo(resource_group="lab", gpu_memory=24 * 2**30, fgpu=Decimal("0.5"), fits=1),
    ]
    assert rooms_text(rooms) == "Fits now: 3 x A100 (0.15 fGPU each), 1 x 24 GiB (0.5 fGPU each)."
    assert rooms_text([]) == ""
