"""The same questions asked through JAX: memory until refused, and the speed of a matrix product.

Prints one JSON object. protocol.py turns JAX's preallocation off.
"""

import json
import os
import sys
import time

import jax  # type: ignore[import-not-found]

CHUNK = 256 << 20


def memory() -> dict[str, int]:
    chunks = []
    try:
        while True:
            chunks.append(jax.numpy.zeros(CHUNK, dtype=jax.numpy.uint8).block_until_ready())
    except jax.errors.JaxRuntimeError as error:
        return {"allocated": len(chunks) * CHUNK, "code": 2 if "RESOURCE_EXHAUSTED" in str(error) else 1}


def matmul() -> dict[str, float]:
    """Return TFLOP/s of bf16 products of 8192 x 8192."""
    n, seconds = 8192, float(os.environ["FGPU_SECONDS"])
    a = jax.random.normal(jax.random.key(0), (n, n), dtype=jax.numpy.bfloat16)
    product = jax.jit(lambda left, right: left @ right)
    product(a, a).block_until_ready()
    products, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        for _ in range(10):
            last = product(a, a)
        last.block_until_ready()
        products += 10
    return {"tflops": products * 2 * n**3 / (time.perf_counter() - began) / 1e12}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(memory() if sys.argv[1] == "memory" else matmul()) + "\n")
