"""What the command line says of amounts."""

from datetime import UTC, datetime
from typing import Any

import pytest

from gpuplatform_client.cli.amounts import resources_text
from gpuplatform_client.models.platform import ComputeSession

NAMES = dict.fromkeys(("id", "name", "owner", "status", "image", "resource_group"), "a")
SESSION: dict[str, Any] = {**NAMES, "cpu": 4, "memory": 2**30, "created_at": datetime(2026, 1, 1, tzinfo=UTC)}


@pytest.mark.parametrize(
    ("milli", "text"), [(None, "4 CPU, 1 GiB"), (4000, "4 CPU, 1 GiB"), (1500, "4 CPU (1.5 guaranteed), 1 GiB")]
)
def test_a_part_that_is_guaranteed_is_named(milli: int | None, text: str) -> None:
    assert resources_text(ComputeSession(**SESSION, cpu_guaranteed_milli=milli)) == text
