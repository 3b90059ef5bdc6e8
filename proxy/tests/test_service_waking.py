"""Requests for a service without replicas that wakes: they wait for one, and the control plane is told."""

import asyncio
import json
from contextlib import AsyncExitStack

import pytest

from proxy.balancing import balancer
from proxy.tests.black_box import seen
from proxy.tests.services import BEARER, HOST, RunningService, call, running_service
from proxy.tests.wire import Client, Reply, connected, request

pytestmark = pytest.mark.loopback

BROWSER = {"Sec_Fetch_Mode": "navigate", "Accept": "text/html"}


async def ask(running: RunningService, data: bytes) -> Reply:
    """Return the response to one request over a connection of its own."""
    async with connected(running.port) as client:
        return await client.ask(data)


def fall_asleep(running: RunningService) -> None:
    running.numbers = []
    running.publish()


def wake_up(running: RunningService) -> None:
    running.numbers = [1]
    running.publish()


def waiting(running: RunningService) -> int:
    """Return how many requests wait."""
    found = list(running.plane._balancers.figures())
    return sum(figures.outstanding for figures in found if not figures.session)


async def cold(stack: AsyncExitStack, running: RunningService, count: int) -> list[Client]:
    """Return clients whose requests wait."""
    clients = [await stack.enter_async_context(connected(running.port)) for _ in range(count)]
    for client in clients:
        await client.send(call("POST", "/echo", b"hello"))
    await running.until(lambda: waiting(running) == count)
    return clients


async def answer(client: Client) -> Reply:
    """Return the response to the request that the client has sent."""
    reply = await client.head()
    reply.body = await client.body(reply)
    return reply


async def test_a_hundred_cold_requests_wake_once_and_are_served() -> None:
    async with running_service(1, wakes=True, wake_seconds=60) as running, AsyncExitStack() as stack:
        fall_asleep(running)
        clients = await cold(stack, running, 100)
        assert running.control_plane.woken == ["d1"]
        assert running.served() == [0]
        wake_up(running)
        replies = [await answer(client) for client in clients]
        assert {reply.status for reply in replies} == {200}
        assert {seen(reply)["size"] for reply in replies} == {5}
        assert running.served() == [100]


async def test_those_who_wait_hear_of_a_replica_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balancer, "WAKE_POLL_SECONDS", 3600.0)
    async with running_service(1, wakes=True, wake_seconds=60) as running, AsyncExitStack() as stack:
        fall_asleep(running)
        [client] = await cold(stack, running, 1)
        wake_up(running)
        assert (await answer(client)).status == 200


async def test_no_more_than_the_line_holds_wait() -> None:
    async with running_service(1, wakes=True, wake_seconds=60, queue=3) as running, AsyncExitStack() as stack:
        fall_asleep(running)
        await cold(stack, running, 3)
        reply = await ask(running, call())
        assert (reply.status, bool(reply.all("retry-after"))) == (429, True)


async def test_a_replica_that_does_not_wake_in_time_is_503() -> None:
    async with running_service(1, wakes=True, wake_seconds=1) as running:
        fall_asleep(running)
        reply = await ask(running, call())
        assert (reply.status, bool(reply.all("retry-after"))) == (503, True)
        assert waiting(running) == 0


async def test_browsers_are_shown_a_page_that_waits() -> None:
    async with running_service(1, wakes=True, wake_seconds=60) as running:
        fall_asleep(running)
        reply = await ask(running, call("GET", "/", **BROWSER))
        assert (reply.status, reply.all("content-type")) == (202, ["text/html; charset=utf-8"])
        assert running.control_plane.woken == ["d1"]


async def test_without_holding_requests_the_first_still_wakes() -> None:
    async with running_service(1, wakes=True, wake_seconds=0) as running:
        fall_asleep(running)
        assert (await ask(running, call())).status == 503
        assert running.control_plane.woken == ["d1"]


async def test_what_does_not_wake_is_refused_at_once() -> None:
    async with running_service(1, wake_seconds=60) as running:
        fall_asleep(running)
        reply = await ask(running, call())
        assert (reply.status, json.loads(reply.body)["status"]) == (503, 503)
        assert running.control_plane.woken == []


async def test_strangers_wake_nothing() -> None:
    async with running_service(1, wakes=True, wake_seconds=60) as running:
        fall_asleep(running)
        for headers in ({}, {"Authorization": f"{BEARER['Authorization']}x"}):
            assert (await ask(running, request("GET", "/", b"", HOST, **headers))).status == 401
        assert running.control_plane.woken == []


async def test_a_client_that_leaves_frees_its_place() -> None:
    async with running_service(1, wakes=True, wake_seconds=60, queue=1) as running, AsyncExitStack() as stack:
        fall_asleep(running)
        async with connected(running.port) as client:
            await client.send(call())
            await running.until(lambda: waiting(running) == 1)
        await running.until(lambda: waiting(running) == 0)
        await cold(stack, running, 1)


async def test_the_control_plane_is_told_again_while_they_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balancer, "WAKE_SECONDS", 0.01)
    async with running_service(1, wakes=True, wake_seconds=60) as running, AsyncExitStack() as stack:
        fall_asleep(running)
        await cold(stack, running, 1)
        await running.until(lambda: len(running.control_plane.woken) >= 3)
        wake_up(running)
        await running.until(lambda: running.served() == [1])
        told = len(running.control_plane.woken)
        await asyncio.gather(*(ask(running, call()) for _ in range(3)))
        assert len(running.control_plane.woken) == told
