"""Clients of a service that hardly read: they do not keep its replicas from others."""

from typing import cast

import pytest

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
