"""Clients of a service that hardly read, and lines that hardly move: others do not wait for them."""

import asyncio
from contextlib import AsyncExitStack
from typing import cast

import pytest

from proxy.balancing import balancer
from proxy.listener.client_connection import ClientConnection
from proxy.tests.services import call, running_service
from proxy.tests.wire import connected

pytestmark = pytest.mark.loopback


async def test_a_client_that_stops_reading_frees_the_replica() -> None:
    async with running_service(1, concurrency=1, queue=0) as running, connected(running.port) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(call("GET", "/big"))
        await running.until(lambda: bool(running.plane.connections))
        [stuck] = (cast(ClientConnection, each) for each in running.plane.connections)
        await running.until(lambda: stuck.is_paused)
        assert stuck.deadline < float("inf")
        async with connected(running.port) as other:
            assert (await other.ask(call())).status == 429
        stuck._unread += 1  # it has read a little since
        stuck.expire()
        assert not stuck.transport.is_closing()

        def is_cut_off() -> bool:
            stuck.expire()
            return stuck.transport.is_closing()

        await running.until(is_cut_off)
        async with connected(running.port) as other:
            assert (await other.ask(call())).status == 200


async def test_a_line_of_bound_requests_is_searched_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balancer, "PASS_OVER_SECONDS", 1000.0)
    async with running_service(2, sticky="x-user", concurrency=1) as running, AsyncExitStack() as stack:
        for _ in range(3):
            client = await stack.enter_async_context(connected(running.port))
            await client.send(call("GET", "/think", X_User="ann"))
        [service] = running.plane._balancers._balancers.values()
        await running.until(lambda: len(service._line) == 2)

        def rest_after_a_look() -> float:
            service._serve_waiting()
            return service._line._rests_until - asyncio.get_running_loop().time()

        assert rest_after_a_look() > 1500  # for the two that are bound to the busy replica
        [free] = (each for each in service._choice.taking if not each.outstanding.count())
        free.outstanding.add()
        assert rest_after_a_look() <= 0  # where none has room, the first tells that of all
