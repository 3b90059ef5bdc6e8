"""Whether a replica can serve, by the probes of its host. Pure but for the probe's socket; its end may be hostile."""

import asyncio
import time
from dataclasses import dataclass, replace
from typing import Final

from engine.http import HttpResponseError, get_status

STARTING: Final = "starting"
HEALTHY: Final = "healthy"
UNHEALTHY: Final = "unhealthy"
FIRST_ERROR: Final = 400  # the least status by which a replica says that it cannot serve
FIRST_PAUSE_SECONDS: Final = 0.005  # between two probes of a replica that has just started
PAUSES_OF_AGE: Final = 20  # of which the age of a replica that starts has as many
HEADERS: Final = {"User-Agent": "gpuplatform-health"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeTarget:
    """What is probed, and how."""

    address: str
    port: int
    path: str  # of HTTP; empty: that the port accepts a connection is enough
    timeout_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a replica may fail."""

    start_seconds: float  # in which failures do not count, until it was healthy once
    retries: int  # failures in a row that make it unhealthy


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthRecord:
    """What is known of a replica's health."""

    health: str = STARTING
    failures: int = 0  # in a row
    detail: str = ""  # why the last probe failed


def after_probe(record: HealthRecord, problem: str, *, patience: Patience, age_seconds: float) -> HealthRecord:
    """Return what is known after a probe of a replica that runs for so long. `problem`: why it failed; "" if not."""
    if not problem:
        return HealthRecord(health=HEALTHY)
    if record.health == STARTING and age_seconds < patience.start_seconds:
        return replace(record, failures=0, detail=problem)
    failures = record.failures + 1
    health = UNHEALTHY if failures >= patience.retries else record.health
    return HealthRecord(health=health, failures=failures, detail=problem)


async def probe(target: ProbeTarget) -> str:
    """Ask the replica by one connection of its own; return why it cannot serve, "" if it can.

    No redirect is followed, and no more is read than the head of the response.
    """
    try:
        if not target.path:
            return await _connect(target)
        return await _get(target)
    except TimeoutError:
        return f"It did not answer within {target.timeout_seconds:.0f} s."
    except ConnectionRefusedError:
        return f"Nothing listens on port {target.port}."
    except OSError:
        return f"Port {target.port} cannot be reached."


async def first_answer(target: ProbeTarget, *, age_seconds: float, seconds: float) -> str:
    """Probe a replica that starts until it can serve, for so long; return what the last probe found.

    It is found so within a twentieth of its age, from 5 ms on, after it has begun to answer.
    """
    begun_at = time.monotonic()
    while problem := await probe(target):
        passed = time.monotonic() - begun_at
        pause = max(FIRST_PAUSE_SECONDS, (age_seconds + passed) / PAUSES_OF_AGE)
        if passed + pause >= seconds:
            return problem
        await asyncio.sleep(pause)
    return ""


async def _connect(target: ProbeTarget) -> str:
    async with asyncio.timeout(target.timeout_seconds):
        _, writer = await asyncio.open_connection(target.address, target.port)
    writer.transport.abort()
    return ""


async def _get(target: ProbeTarget) -> str:
    try:
        status = await get_status(
            target.address, target.port, target.path, HEADERS, timeout_seconds=target.timeout_seconds
        )
    except HttpResponseError:
        return f"What listens on port {target.port} does not speak HTTP."
    if status is None:
        return f"{target.path} closed the connection without a response."
    return f"{target.path} answered with status {status}." if status >= FIRST_ERROR else ""
