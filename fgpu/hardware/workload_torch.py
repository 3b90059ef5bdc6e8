"""The same questions asked through PyTorch, as users do: memory until refused, and the speed of a matrix product.

Prints one JSON object. The allocator is chosen by PYTORCH_CUDA_ALLOC_CONF, set by protocol.py.
"""

import json
import os
import sys
import time

import torch  # type: ignore[import-not-found]


def memory() -> dict[str, int]:
    free, total = torch.cuda.mem_get_info()
    chunks, refused = [], 0
    while not refused:
        try:
            chunks.append(torch.empty(256 << 20, dtype=torch.uint8, device="cuda"))
        except torch.cuda.OutOfMemoryError:
            refused = 2
    return {"total": total, "free_before": free, "allocated": len(chunks) * (256 << 20), "code": refused}


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
    sys.stdout.write(json.dumps(memory() if sys.argv[1] == "memory" else matmul(sys.argv[2])) + "\n")
