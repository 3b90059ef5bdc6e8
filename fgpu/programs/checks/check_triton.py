"""Triton's own driver for NVIDIA's GPUs: it compiles a kernel, loads the binary, and launches it as its runtime does.
Its test-suite needs PyTorch's runtime, which needs tables that are not public."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import triton  # type: ignore[import-not-found]
from triton import language as tl
from triton.backends.compiler import GPUTarget  # type: ignore[import-not-found]
from triton.backends.nvidia.driver import CudaUtils  # type: ignore[import-not-found]
from triton.compiler import ASTSource  # type: ignore[import-not-found]

THREADS, BYTES = 1024, 4096


@triton.jit  # type: ignore[untyped-decorator]
def add(x, y, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) + tl.load(y + at, at < n), at < n)


@pytest.fixture(scope="module")
def cuda() -> Any:
    cuda = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    return cuda


@pytest.fixture(scope="module")
def kernel() -> Any:
    signature = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    source = ASTSource(fn=add, signature=signature, constexprs={"BLOCK": 128})
    return triton.compile(source, target=GPUTarget("cuda", 90, 32))


def test_it_sees_the_device(cuda: Any) -> None:
    properties = CudaUtils().get_device_properties(0)
    assert properties["multiprocessor_count"] > 0
    assert properties["warpSize"] == 32


def test_it_loads_a_kernel(cuda: Any, kernel: Any) -> None:
    module, function, registers, spills, threads = CudaUtils().load_binary(
        kernel.metadata.name, kernel.asm["cubin"], kernel.metadata.shared, 0
    )
    assert module
    assert function
    assert registers > 0
    assert spills == 0
    assert threads == THREADS


def test_the_kernel_can_be_launched(cuda: Any, kernel: Any) -> None:
    _, function, *_ = CudaUtils().load_binary(kernel.metadata.name, kernel.asm["cubin"], kernel.metadata.shared, 0)
    memory = ctypes.c_ulonglong()
    assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(BYTES)) == 0
    values = [memory, memory, memory, ctypes.c_int(100), ctypes.c_ulonglong(0), ctypes.c_ulonglong(0)]
    params = (ctypes.c_void_p * len(values))(*(ctypes.cast(ctypes.pointer(value), ctypes.c_void_p) for value in values))
    assert cuda.cuLaunchKernel(ctypes.c_void_p(function), 1, 1, 1, 128, 1, 1, 0, None, params, None) == 0
    assert cuda.cuCtxSynchronize() == 0
    assert cuda.cuMemFree_v2(memory) == 0
