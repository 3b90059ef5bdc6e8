"""Two machines with an engine and a host worker each; browsers reach the web process on the first of them alone."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from asgiref.sync import sync_to_async
from django.db import connections

from sessions import services
from sessions.lifecycle import Status
from sessions.terminal_messages import CloseCode
from tests.fgpu_sessions import wait_for
from tests.tiny_image import ensure_tiny_image
from tests.two_hosts import TwoHosts, terminal, two_hosts
from tests.wait import until

pytestmark = [pytest.mark.docker, pytest.mark.django_db(transaction=True)]


@pytest_asyncio.fixture(autouse=True)
async def _no_connection_left() -> AsyncIterator[None]:
    yield
    await sync_to_async(connections.close_all)()  # those of the threads in which a coroutine reads the database


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[TwoHosts]:
    """Both hosts, with a session on each."""
    with two_hosts(tmp_path, ensure_tiny_image()) as running:
        yield running


async def test_terminals_and_logs_of_both_hosts_work_through_the_web_process_alone(hosts: TwoHosts) -> None:
    for session in (hosts.near, hosts.far):
        is_far = session is hosts.far
        await sync_to_async(session.refresh_from_db)()
        assert await asyncio.to_thread(hosts.machine.has_container, session.container_id) is is_far
        async with terminal(hosts, session) as shell:
            await shell.run("echo $((6*7)) $GPUPLATFORM_SESSION_ID", f"\r\n42 {session.pk}\r\n")
            await shell.run("echo said $((10+1)) > /proc/1/fd/1; echo do''ne", "done\r\n")
        log = await sync_to_async(hosts.get)(f"/api/v1/sessions/{session.pk}/logs/", session)
        assert log.text == f"{session.pk} ready\nsaid 11\n"

    idle = hosts.gateway.open_connections()
    async with terminal(hosts, hosts.far) as shell:
        await shell.run("echo rea''dy; sleep 1000", "ready\r\n")
        assert hosts.gateway.open_connections() == idle + 2  # one to the web process, one to its engine
        await sync_to_async(services.terminate)(hosts.far, actor=hosts.far.owner)
        assert await shell.closed() == CloseCode.SESSION_ENDED
    await sync_to_async(wait_for)(hosts.far, Status.TERMINATED)
    await asyncio.to_thread(until, lambda: not hosts.machine.has_container(hosts.far.container_id))
    await asyncio.to_thread(until, lambda: hosts.gateway.open_connections() == idle)
    log = await sync_to_async(hosts.get)(f"/api/v1/sessions/{hosts.far.pk}/logs/", hosts.far)
    assert log.text == f"{hosts.far.pk} ready\nsaid 11"
