"""Sizes of the benchmarks: those of a smoke run (BENCH_SMOKE=1) are so small that they show only that it works."""

import os
from typing import Final, TypeVar

PLATFORM: Final = "BENCH_PLATFORM"  # variable with the file that says where the platform is which smoke runs share
IS_SMOKE: Final = os.environ.get("BENCH_SMOKE") == "1"

Size = TypeVar("Size")


def size(full: Size, smoke: Size) -> Size:
    """Return the size that this run has."""
    return smoke if IS_SMOKE else full
