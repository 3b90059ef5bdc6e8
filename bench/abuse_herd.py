"""What becomes of many pages requested at once, and of another user's pages meanwhile; `python -m bench.abuse_herd`.

`herd_200_ok`: how many of 200 list pages that one user requests at once are served. `herd_1000`: how many of 1,000 have
each status, of three times as many. `herd_1000_5xx_other_than_503`, `herd_1000_failed`: how many failed otherwise, or
had no response. `other_p95_ratio`: the 95th percentile of another user's list page while the 1,000 go on, by
that while nothing else does; of both the pages are requested one after the other.
"""

import asyncio
import json
import statistics
import sys
import time
from collections import Counter
from typing import Any, Final
from urllib.parse import urlsplit

from bench.common import load
from bench.shared_platform import bench_platform
from bench.sizes import size
from bench.terminal import cookie_of
from tests.platform import Platform

SMALL: Final = size(200, 20)
LARGE: Final = size(1000, 50)
HERDS: Final = size(3, 1)  # of the large ones, one after the other
PAGES: Final = size(60, 3)  # of the other user, alone
WARM_UP: Final = size(20, 2)
DEADLINE_SECONDS: Final = 120
OTHER: Final = "developer@example.org"
FAILED: Final = 0  # in place of a status


def main() -> None:
    """Run this benchmark alone."""
    with bench_platform("bench-abuse", COMPUTE_SANDBOX_POOL="0") as platform:
        figures = measure(platform)
    sys.stdout.write(json.dumps(figures | {"load": load()}) + "\n")


def measure(platform: Platform) -> dict[str, Any]:
    """Return all figures."""
    return asyncio.run(_measure(urlsplit(platform.url).netloc, cookie_of(platform), cookie_of(platform, OTHER)))


async def _measure(address: str, cookie: str, other: str) -> dict[str, Any]:
    async with asyncio.timeout(DEADLINE_SECONDS):
        for each in (cookie, other):  # the first ones are slow, and tell the server whose cookies these are
            await asyncio.gather(*(_load_page(address, each, number) for number in range(WARM_UP)))
        small = Counter(status for status, _ in await _herd(address, cookie, SMALL))
        quiet = [await _load_page(address, other, 0) for _ in range(PAGES)]
        large, beside = [], []
        for _ in range(HERDS):
            herd = asyncio.create_task(_herd(address, cookie, LARGE))
            while not herd.done():
                beside.append(await _load_page(address, other, 0))
            large += await herd
    statuses = Counter(status for status, _ in large)
    refusals = [seconds for status, seconds in large if status == 503]
    return {
        "herd_200_ok": small[200],
        "herd_1000": {str(status): number for status, number in sorted(statuses.items())},
        "herd_1000_5xx_other_than_503": sum(n for status, n in statuses.items() if status >= 500 and status != 503),
        "herd_1000_failed": statuses[FAILED],
        "herd_1000_seconds": round(max(seconds for _, seconds in large), 2),
        "herd_1000_refused_p95_ms": _p95_ms(refusals),
        "other_pages": len(beside),
        "other_refused": sum(status != 200 for status, _ in beside),
        "other_quiet_p95_ms": _p95_ms([seconds for _, seconds in quiet]),
        "other_p95_ms": _p95_ms([seconds for _, seconds in beside]),
        "other_p95_ratio": round(_p95_ms([s for _, s in beside]) / _p95_ms([s for _, s in quiet]), 2),
    }


async def _herd(address: str, cookie: str, number: int) -> list[tuple[int, float]]:
    return await asyncio.gather(*(_load_page(address, cookie, each) for each in range(number)))


async def _load_page(address: str, cookie: str, number: int) -> tuple[int, float]:
    """Return status and seconds of a list page; by sockets alone, since clients share the cores with the servers.

    Each comes from an address of its own: one address alone is refused with 429 beyond the connections it may open.
    """
    host, _, port = address.partition(":")
    request = f"GET /sessions/ HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n".encode()
    began = time.perf_counter()
    source = f"127.1.{number // 250}.{number % 250 + 1}"
    try:
        reader, writer = await asyncio.open_connection(host, int(port), local_addr=(source, 0))
        writer.write(request)
        status = int((await reader.readline()).split()[1])
        await reader.read()
        writer.close()
    except (OSError, IndexError):
        status = FAILED
    return status, time.perf_counter() - began


def _p95_ms(seconds: list[float]) -> float:
    return round(1000 * statistics.quantiles(seconds, n=20)[-1], 1) if len(seconds) > 1 else 0.0


if __name__ == "__main__":
    main()
