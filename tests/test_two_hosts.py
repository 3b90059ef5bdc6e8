"""Two machines with an engine and a host worker each; browsers reach the web process on the first of them alone."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio
import requests
from asgiref.sync import sync_to_async
from django.db import connections

from endpoints.services import open_app
from sessions.launching import services
from sessions.lifecycle import Status
from sessions.models import Endpoint, EndpointState, Session
from sessions.terminal.messages import CloseCode
from tests.fgpu_sessions import wait_for
from tests.live import app_cookie, app_host
from tests.tiny_image import ensure_tiny_image
from tests.two_hosts import TwoHosts, terminal, two_hosts
from tests.wait import SECONDS, until

pytestmark = [pytest.mark.long, pytest.mark.docker, pytest.mark.django_db(transaction=True)]

SIZE = 30_000_000
SITE = """
mkdir /tmp/www && cd /tmp/www
echo I am $GPUPLATFORM_SESSION_ID > index.html
head -c {size} /dev/urandom > big && busybox md5sum big > sum
printf 'read -r request; printf "HTTP/1.1 200 OK\\\\r\\\\n\\\\r\\\\n"; busybox yes\\n' > /tmp/endless
busybox nc -ll -p 8081 -e sh /tmp/endless &
exec busybox httpd -f -p 8080 -h /tmp/www
"""


@pytest_asyncio.fixture(autouse=True)
async def _no_connection_left() -> AsyncIterator[None]:
    yield
    await sync_to_async(connections.close_all)()  # those of the threads in which a coroutine reads the database


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[TwoHosts]:
    """Both hosts, with a session on each."""
    with two_hosts(tmp_path, ensure_tiny_image()) as running:
        yield running


async def test_terminals_and_logs_of_both_hosts_work(hosts: TwoHosts) -> None:
    for session in (hosts.near, hosts.far):
        is_far = session is hosts.far
        await sync_to_async(session.refresh_from_db)()
        assert await asyncio.to_thread(hosts.machine.has_container, session.container_id) is is_far
        async with terminal(hosts, session) as shell:
            await shell.run("echo $((6*7)) $GPUPLATFORM_SESSION_ID", f"\r\n42 {session.pk}\r\n")
            await shell.run("echo said $((10+1)) > /proc/1/fd/1; echo do''ne", "done\r\n")
        log = await sync_to_async(hosts.get)(f"/api/v1/sessions/{session.pk}/logs/", session)
        assert log.text == f"{session.pk} ready\nsaid 11\n"

    async with terminal(hosts, hosts.far) as shell:
        await shell.run("echo rea''dy; sleep 1000", "ready\r\n")
        await asyncio.to_thread(until, lambda: hosts.gateway.open_connections() == 1)
        await sync_to_async(services.terminate)(hosts.far, actor=hosts.far.owner)
        assert await shell.closed() == CloseCode.SESSION_ENDED
    await sync_to_async(wait_for)(hosts.far, Status.TERMINATED)
    await asyncio.to_thread(until, lambda: not hosts.machine.has_container(hosts.far.container_id))
    await asyncio.to_thread(until, lambda: hosts.gateway.open_connections() == 0)
    log = await sync_to_async(hosts.get)(f"/api/v1/sessions/{hosts.far.pk}/logs/", hosts.far)
    assert log.text == f"{hosts.far.pk} ready\nsaid 11"


def test_apps_of_both_hosts_work_until_session_end(hosts: TwoHosts) -> None:
    for session in (hosts.near, hosts.far):
        session.refresh_from_db()
        hosts.run(session, SITE.format(size=SIZE))
        endpoint = opened(session, "p8080")
        wait_until_it_answers(hosts, endpoint)
        assert ask(hosts, endpoint).text == f"I am {session.pk}\n"
        assert (
            ask(hosts, endpoint, "/sum").text.split()[0]
            == hashlib.md5(ask(hosts, endpoint, "/big").content).hexdigest()
        )
        assert ask(hosts, endpoint, cookie="").status_code == 401
        stranger = requests.get(
            f"{hosts.gateway.url}/", headers={"Host": app_host(hosts.web, endpoint)}, timeout=SECONDS
        )
        assert stranger.status_code == 403

    endless = opened(hosts.far, "p8081")
    wait_until_it_answers(hosts, endless, stream=True)
    stream = ask(hosts, endless, stream=True)
    assert stream.status_code == 200, stream.text
    assert next(stream.iter_content(2)) == b"y\n"
    services.terminate(hosts.far, actor=hosts.far.owner)
    with suppress(requests.RequestException):  # where the cut can be told from an end
        for _ in stream.iter_content(2**20):
            pass
    wait_for(hosts.far, Status.TERMINATED)
    assert ask(hosts, endless).status_code == 410
    assert ask(hosts, endpoint).status_code == 410


def opened(session: Session, app: str) -> Endpoint:
    """Return the endpoint of a port of the session, once its host has found it answering."""
    endpoint = open_app(session, app, actor=session.owner).endpoint
    until(lambda: Endpoint.objects.filter(pk=endpoint.pk, state=EndpointState.READY).exists())
    return endpoint


def ask(
    hosts: TwoHosts, endpoint: Endpoint, path: str = "/", *, cookie: str | None = None, stream: bool = False
) -> requests.Response:
    """Return what the app answers to its owner at the web process, or to another `cookie`."""
    headers = {"Host": app_host(hosts.web, endpoint), "Cookie": app_cookie(endpoint) if cookie is None else cookie}
    return requests.get(
        f"{hosts.web.url}{path}", headers=headers, timeout=SECONDS, stream=stream, allow_redirects=False
    )


def wait_until_it_answers(hosts: TwoHosts, endpoint: Endpoint, *, stream: bool = False) -> None:
    until(lambda: ask(hosts, endpoint, stream=stream).status_code == 200)
