"""What deployments are asked to serve now, as the processes of the data plane report it, and their replicas' GPU use.

Losable, as the figures are: what nobody has reported is unknown.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from deployments import figures
from deployments.scaling.memory import MAX_GAP_SECONDS
from sessions.idle.usage_periods import latest_uses
from sessions.notify import proxies_redis

MEMORY_SECONDS = 7200  # for which the memory of a deployment that nobody looks at is kept
GPU_WINDOW = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLoad:
    """What a deployment is asked now. `outstanding` and `served` are None while no process reports."""

    outstanding: int | None = None  # requests under way or waiting
    served: int | None = None  # requests that have ended or were refused, since ever
    memory: str | bytes | None = None  # of the autoscaler


def loads(deployments: Sequence[str]) -> list[ServiceLoad]:
    """Return the loads of these deployments; one round trip. Raises RedisError."""
    found = figures.current(deployments)
    memories: Any = proxies_redis().mget([_memory_key(pk) for pk in deployments]) if deployments else []
    return [
        ServiceLoad(outstanding=now.outstanding, served=now.served, memory=memory)
        for now, memory in zip(found, memories, strict=True)
    ]


def keep(memories: Mapping[str, str]) -> None:
    """Store what the autoscaler remembers, by deployment. Raises RedisError."""
    with proxies_redis().pipeline(transaction=False) as pipeline:
        for deployment, memory in memories.items():
            pipeline.set(_memory_key(deployment), memory, ex=MEMORY_SECONDS)
        pipeline.execute()


def gpu_percent(replicas: Mapping[str, Collection[str]], now: datetime) -> dict[str, float | None]:
    """Return the sum of the GPU use of the replicas of each deployment, given by session ids; three queries.

    None where that of none is known; a replica whose use is not known counts as much as the others.
    """
    sessions = [session for found in replicas.values() for session in found]
    if not sessions:
        return {}
    uses = latest_uses(sessions, now - GPU_WINDOW, now)
    sums: dict[str, float | None] = {}
    for deployment, found in replicas.items():
        known = [use.gpu_percent for session in found if (use := uses.get(session)) and use.gpu_percent is not None]
        sums[deployment] = sum(known) / len(known) * len(found) if known else None
    return sums


def rate(before: int | None, served: int | None, seconds: float) -> float | None:
    """Return the requests per second between two looks; None where that is not known."""
    if before is None or served is None or served < before or not 0 < seconds <= MAX_GAP_SECONDS:
        return None
    return (served - before) / seconds


def _memory_key(deployment: str) -> str:
    return f"gp.scaling:{deployment}"
