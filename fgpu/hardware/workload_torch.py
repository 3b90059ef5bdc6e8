"""The same questions asked through PyTorch, as users do: memory until refused, and the speed of a matrix product.

Prints one JSON object. The allocator is chosen by PYTORCH_CUDA_ALLOC_CONF, set by protocol.py.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable

import torch  # type: ignore[import-not-found]


def memory() -> dict[str, object]:
    free, total = torch.cuda.mem_get_info()
    chunks, refused = [], 0
    while not refused:
        try:
            chunks.append(torch.empty(256 << 20, dtype=torch.uint8, device="cuda"))
        except torch.cuda.OutOfMemoryError:
            refused = 2
    allocated = len(chunks) * (256 << 20)
    return {"total": total, "free_before": free, "allocated": allocated, "code": refused, "allocator": allocator()}


def allocator() -> list[object]:
    """Return which allocator has run: its backend, and whether its segments expand."""
    backend = torch.cuda.memory.get_allocator_backend()
    segments = torch.cuda.memory_snapshot() if backend == "native" else []
    return [backend, any(segment.get("is_expandable", False) for segment in segments)]


def nccl() -> dict[str, float]:
    """Return the sum over a process group of one, made by NCCL."""
    with tempfile.TemporaryDirectory() as folder:
        torch.distributed.init_process_group("nccl", init_method=f"file://{folder}/store", rank=0, world_size=1)
        value = torch.ones(1 << 20, device="cuda")
        torch.distributed.all_reduce(value)
        torch.cuda.synchronize()
        torch.distributed.destroy_process_group()
        return {"sum": float(value[0])}


def train() -> dict[str, float]:
    """Return steps per second of a small network that learns a fixed product, and its loss before and after."""
    seconds, width = float(os.environ["FGPU_SECONDS"]), 2048
    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (torch.nn.Linear(width, width), torch.nn.GELU())]
    network = torch.nn.Sequential(*layers, torch.nn.Linear(width, width)).to("cuda", torch.bfloat16)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
    inputs = torch.randn(512, width, dtype=torch.bfloat16, device="cuda")
    wanted = inputs @ torch.randn(width, width, dtype=torch.bfloat16, device="cuda") / width**0.5

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(network(inputs).float(), wanted.float())
        loss.backward()
        optimizer.step()
        return loss.detach()

    first = float(step())
    steps, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        for _ in range(10):
            loss = step()
        torch.cuda.synchronize()
        steps += 10
    elapsed = time.perf_counter() - began
    return {"steps_per_second": steps / elapsed, "first_loss": first, "last_loss": float(loss)}


def matmul(pattern: str) -> dict[str, float]:
    """Return TFLOP/s of bf16 products of 8192 x 8192, launched one by one or replayed from a CUDA graph."""
    n, seconds = 8192, float(os.environ["FGPU_SECONDS"])
    a = torch.randn(n, n, dtype=torch.bfloat16, device="cuda")
    b = torch.randn(n, n, dtype=torch.bfloat16, device="cuda")
    out = torch.empty_like(a)
    torch.matmul(a, b, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    if pattern == "graph":
        with torch.cuda.graph(graph):
            for _ in range(10):
                torch.matmul(a, b, out=out)
    products, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        if pattern == "graph":
            graph.replay()
        else:
            for _ in range(10):
                torch.matmul(a, b, out=out)
        products += 10
        if products % 50 == 0:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    return {"tflops": products * 2 * n**3 / (time.perf_counter() - began) / 1e12}


if __name__ == "__main__":
    parts: dict[str, Callable[..., object]] = {"memory": memory, "nccl": nccl, "train": train, "matmul": matmul}
    sys.stdout.write(json.dumps(parts[sys.argv[1]](*sys.argv[2:])) + "\n")
