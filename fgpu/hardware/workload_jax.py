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


def train() -> dict[str, float]:
    """Return steps per second of a small network that learns a fixed product, and its loss before and after."""
    seconds, width = float(os.environ["FGPU_SECONDS"]), 2048
    keys = jax.random.split(jax.random.key(0), 8)
    weights = [jax.random.normal(key, (width, width)) / width**0.5 for key in keys[:6]]
    inputs = jax.random.normal(keys[6], (512, width))
    wanted = inputs @ jax.random.normal(keys[7], (width, width)) / width**0.5

    def loss_of(weights):  # type: ignore[no-untyped-def]
        values = inputs
        for weight in weights:
            values = jax.nn.gelu(values @ weight)
        return ((values - wanted) ** 2).mean()

    @jax.jit
    def step(weights):  # type: ignore[no-untyped-def]
        loss, slopes = jax.value_and_grad(loss_of)(weights)
        return loss, [weight - 1e-2 * slope for weight, slope in zip(weights, slopes, strict=True)]

    loss, weights = step(weights)
    first = float(loss)
    steps, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        for _ in range(10):
            loss, weights = step(weights)
        loss.block_until_ready()
        steps += 10
    elapsed = time.perf_counter() - began
    return {"steps_per_second": steps / elapsed, "first_loss": first, "last_loss": float(loss)}


if __name__ == "__main__":
    sys.stdout.write(json.dumps({"memory": memory, "train": train, "matmul": matmul}[sys.argv[1]]()) + "\n")
