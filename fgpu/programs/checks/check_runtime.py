"""How far CUDA's runtime gets, which CuPy has in it and PyTorch loads: to the tables of functions that it asks the
driver for by cuGetExportTable. They are not public, so the simulated driver has none."""

from __future__ import annotations

import ctypes
from pathlib import Path

import cupy  # type: ignore[import-not-found]
import nvidia.cuda_runtime  # type: ignore[import-not-found]
import pytest

NO_TABLE = 500  # cudaErrorSymbolNotFound


def runtime() -> ctypes.CDLL:
    folder = Path(next(iter(nvidia.cuda_runtime.__path__))) / "lib"
    return ctypes.CDLL(str(next(folder.glob("libcudart.so.*"))))


def test_the_runtime_finds_the_driver() -> None:
    version = ctypes.c_int()
    assert runtime().cudaDriverGetVersion(ctypes.byref(version)) == 0
    assert version.value >= 12000
    assert cupy.cuda.runtime.driverGetVersion() == version.value


def test_the_runtime_ends_at_private_tables() -> None:
    count = ctypes.c_int()
    assert runtime().cudaGetDeviceCount(ctypes.byref(count)) == NO_TABLE
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="cudaErrorSymbolNotFound"):
        cupy.cuda.runtime.getDeviceCount()
