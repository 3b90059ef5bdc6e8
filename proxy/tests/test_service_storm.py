"""Thousands of requests while replicas die, drain, come and go: each is answered right, or told to come again."""

import asyncio
import hashlib
import random
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from proxy.tests.app import running_app
from proxy.tests.black_box import seen
from proxy.tests.services import RunningService, call, running_service
from proxy.tests.wire import connected

pytestmark = pytest.mark.loopback

CLIENTS = 64
REQUESTS_OF_A_CLIENT = 40
AGAIN = {429, 503}


async def ask_all(running: RunningService, number: int, statuses: Counter[int]) -> None:
    """Send requests of one client, over connections that it keeps as long as it may."""
    chance = random.Random(number)
    left = REQUESTS_OF_A_CLIENT
    while left:
        async with connected(running.port) as client:
            is_kept = True
            while left and is_kept:
                left -= 1
                body = chance.randbytes(chance.choice((0, 10, 5000)))
                reply = await client.ask(call("POST" if body else "GET", f"/echo/{number}", body))
                statuses[reply.status] += 1
                if reply.status == 200:
                    assert seen(reply)["digest"] == hashlib.sha256(body).hexdigest()
                    assert f"/echo/{number} " in seen(reply)["line"]
                else:
                    assert reply.status in AGAIN, reply
                    assert reply.all("retry-after")
                    await asyncio.sleep(0.01)
                is_kept = "close" not in reply.all("connection")


async def disturb(running: RunningService, stack: AsyncExitStack) -> None:
    """Drain, kill, remove and add replicas, for ever."""
    chance = random.Random(29)
    while True:
        number = chance.choice(running.numbers)
        match chance.choice(("drain", "kill", "replace")):
            case "drain":
                running.change_replica(number, takes_requests=False)
                await asyncio.sleep(0.02)
                running.change_replica(number, takes_requests=True)
            case "kill":
                running.apps[number - 1].kill()
                await asyncio.sleep(0.05)
                running.change_replica(number, takes_requests=False)
            case "replace":
                await add(running, stack)
                running.change_replica(number, takes_requests=False)
                await running.until(lambda number=number: outstanding(running, number) == 0)  # type: ignore[misc]
                running.remove(number)
        while len([each for each in running.numbers if takes_requests(running, each)]) < 3:
            await add(running, stack)
        await asyncio.sleep(0.01)


def takes_requests(running: RunningService, number: int) -> bool:
    """Return whether a replica takes requests, as far as the table knows."""
    return bool(running.replica_changes.get(number, {}).get("takes_requests", True))


def outstanding(running: RunningService, number: int) -> int:
    """Return how many requests are under way at a replica."""
    (balancer,) = running.plane._balancers._balancers.values()
    return sum(each.outstanding.count() for each in balancer._replicas.values() if each.route.session == f"r{number}")


async def add(running: RunningService, stack: AsyncExitStack) -> None:
    """Start another replica."""
    running.apps.append(await stack.enter_async_context(running_app()))
    running.numbers.append(len(running.apps))
    running.publish()


@pytest.mark.parametrize("concurrency", [0, 4])
async def test_every_request_is_answered_while_replicas_come_and_go(concurrency: int) -> None:
    statuses: Counter[int] = Counter()
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(running_service(4, concurrency=concurrency, queue=CLIENTS))
        disturbing = asyncio.create_task(disturb(running, stack))
        await asyncio.gather(*(ask_all(running, number, statuses) for number in range(CLIENTS)))
        disturbing.cancel()
        running.control_plane.figures.clear()
        running.plane._sweep()
        assert sum(each.outstanding for each in running.control_plane.figures) == 0
    assert sum(statuses.values()) == CLIENTS * REQUESTS_OF_A_CLIENT
    assert statuses[200] > 0.9 * sum(statuses.values()), statuses
