"""A canary from end to end: rows, what data planes read of them, a real data plane and servers, and its figures."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

import pytest
from channels.db import database_sync_to_async
from django.conf import settings

from deployments import figures, services
from deployments.models import Deployment, Replica, StepwiseRollout
from deployments.replicas.reconciliation import reconcile
from deployments.tests.making import heal, revision_request, run_replicas, serving_deployment
from endpoints.routing import service_routes
from proxy.data_plane import DataPlane
from proxy.tests.servers import serving
from proxy.tests.site import FakeControlPlane, authorizer
from proxy.tests.wire import connected, request
from resources import clock
from sessions.models import Endpoint, Session
from tests.factories import make_host
from tests.wait import SECONDS

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.loopback]

ANSWERS = {
    "good": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "bad": b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
}


@pytest.fixture(autouse=True)
def _reaches_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "COMPUTE_SESSION_SUBNETS", ["127.0.0.0/8"])


class Site:
    """A deployment of two replicas and the data plane in front of it."""

    def __init__(self, deployment: Deployment, stack: AsyncExitStack) -> None:
        self.deployment = deployment
        self.control_plane = FakeControlPlane()
        self.authorizer = authorizer(control_plane=self.control_plane)
        self.ports: dict[str, tuple[str, int]] = {}  # by replica
        self.sent = 0
        self._stack = stack

    async def look(self, new: str = "good") -> None:
        """Reconcile twice; new replicas run meanwhile, each with a server of this kind; then have the plane read."""
        for replica in await database_sync_to_async(self._started)():
            if replica.pk not in self.ports:
                server = await asyncio.start_server(_server(ANSWERS[new]), "127.0.0.1", 0)
                self._stack.callback(server.close)
                self.ports[replica.pk] = ("127.0.0.1", server.sockets[0].getsockname()[1])
        await database_sync_to_async(self._healthy)()
        rows = await database_sync_to_async(service_routes.read)([self.deployment.pk])
        self.authorizer.table.replace(rows.routes)
        self.authorizer.table.replace_services(rows.services)

    def _started(self) -> list[Replica]:
        reconcile(self.deployment.pk)
        return run_replicas(self.deployment, self.deployment.resource_group.hosts.get())

    def _healthy(self) -> None:
        for pk, (address, port) in self.ports.items():
            Session.objects.filter(pk=pk).update(address=address)
            Endpoint.objects.filter(session=pk).update(port=port)
        heal(*self.deployment.replica_rows.filter(pk__in=self.ports))
        reconcile(self.deployment.pk)

    async def ask(self, count: int) -> tuple[int, int]:
        """Send so many requests; return how many revisions 1 and 2 have answered, by what the plane reports."""
        host = f"{self.deployment.label}.apps.localhost:8000"
        async with serving(DataPlane(self.authorizer, self.control_plane)) as port, connected(port) as client:
            for _ in range(count):
                assert (await client.ask(request("GET", "/", b"", host))).status in (200, 500)
            self.sent += count
            async with asyncio.timeout(SECONDS):
                while sum(each.requests for each in self.control_plane.figures) < self.sent:
                    await asyncio.sleep(0.05)
        reported, self.sent = self.control_plane.figures[:], 0
        self.control_plane.figures.clear()
        await database_sync_to_async(figures.store)("plane", reported)
        one, two = (sum(each.requests for each in reported if each.revision == number) for number in (1, 2))
        return one, two

    async def let_step_pass(self) -> None:
        rows = StepwiseRollout.objects.filter(deployment=self.deployment)
        await rows.aupdate(begun_at=clock.now() - timedelta(seconds=60))


def _server(answer: bytes) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(answer)
        except asyncio.IncompleteReadError:
            writer.close()

    return serve


@asynccontextmanager
async def canary(new: str) -> AsyncIterator[Site]:
    """Yield a site whose second revision has its first share of the requests."""
    async with AsyncExitStack() as stack:
        site = Site(await database_sync_to_async(_deployment)(), stack)
        await site.look()
        await database_sync_to_async(_roll_out)(site.deployment)
        await site.look(new)
        yield site


def _deployment() -> Deployment:
    host = make_host(name=settings.COMPUTE_HOST_NAME)
    return serving_deployment(2, host=host, is_public=True, strategy="canary", step_seconds=60, max_p95_ratio=100)


def _roll_out(deployment: Deployment) -> None:
    services.new_revision(deployment, revision_request(), actor=deployment.owner)


async def test_a_good_canary_gets_exact_shares_and_goes_through() -> None:
    async with canary("good") as site:
        assert await site.ask(1000) == (950, 50)
        await site.let_step_pass()
        await site.look()
        await site.look()
        assert await site.ask(100) == (50, 50)
        await site.let_step_pass()
        for _ in range(3):
            await site.look()
        assert await site.ask(20) == (0, 20)


async def test_a_bad_canary_loses_its_requests_by_itself() -> None:
    async with canary("bad") as site:
        assert await site.ask(1000) == (950, 50)
        await site.let_step_pass()
        await site.look()
        assert await site.ask(40) == (40, 0)
        said = await site.deployment.events.afirst()
        assert said is not None
        assert "100.0 % of its 50 requests failed, against 0.0 % of 950 of revision 1" in said.what
