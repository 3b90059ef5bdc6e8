"""A gateway of several processes: a reload loses no request, and the parent takes all with it."""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from pytest_django import Settings

from engine.engine import ExecError
from hostaccess.models import HostAccess
from sessions.access.engine_address import engine_behind
from tests.factories import make_group
from tests.fleet import START_SECONDS, memory_maps, server_processes
from tests.gateways import Gateway, running_gateway
from tests.wait import SECONDS, until

pytestmark = [pytest.mark.docker, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway of two processes that serve."""
    with running_gateway(settings.COMPUTE_HOST_NAME, tmp_path / "gateway.log", COMPUTE_WEB_PROCESSES="2") as running:
        until(lambda: len(server_processes(running.pid)) == 2, seconds=START_SECONDS)
        assert responses(running, 1) == {404}
        yield running


def responses(gateway: Gateway, count: int) -> set[int | str]:
    """Return what the gateway responds to so many requests for a container that is not there."""
    engine = engine_behind(gateway.url, gateway.host)

    async def ask() -> set[int | str]:
        found: set[int | str] = set()
        for _ in range(count):
            try:
                found.add((await engine.request("GET", "/containers/gp-none-0/json")).status)
            except ExecError as failure:
                found.add(str(failure))
        return found

    return asyncio.run(ask())


@contextmanager
def asking(gateway: Gateway) -> Iterator[set[int | str]]:
    """Send one request after another while the block runs; yield the set of responses."""
    found: set[int | str] = set()
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            found.update(responses(gateway, 1))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join(SECONDS)


def test_a_reload_replaces_the_processes_without_a_lost_request(gateway: Gateway) -> None:
    before = server_processes(gateway.pid)
    with asking(gateway) as found:
        os.kill(gateway.pid, signal.SIGHUP)
        until(lambda: len(now := server_processes(gateway.pid)) == 2 and not now & before, seconds=START_SECONDS)
    assert found == {404}


def test_nothing_outlives_a_gateway_that_was_killed(gateway: Gateway) -> None:
    children = server_processes(gateway.pid)
    gateway.end(signal.SIGKILL)
    until(lambda: not any(memory_maps(child) for child in children))
    gateway.start()
    until(lambda: responses(gateway, 1) == {404})


def test_a_gateway_whose_key_cannot_be_decrypted_says_so(settings: Settings) -> None:
    settings.COMPUTE_GATEWAY_ADDRESS = "127.0.0.1:0"
    HostAccess.objects.create(
        name=settings.COMPUTE_HOST_NAME, role="r1", group=make_group(), encrypted_key=b"of another SECRET_KEY"
    )
    with pytest.raises(CommandError, match="SECRET_KEY_FALLBACKS"):
        call_command("gateway")
