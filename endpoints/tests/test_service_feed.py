"""The services of deployments in a proxy's table, and what a gateway is told of them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta

import pytest
import pytest_asyncio
from channels.db import database_sync_to_async
from django.conf import settings

from accounts.models import User
from deployments import events, hosts, services
from deployments.access import tokens, trials
from deployments.models import Deployment, Replica, ReplicaHealth
from deployments.tests.making import serving_deployment
from endpoints.routing import feed, service_routes
from endpoints.routing.feed import HostRoutes, synchronized
from proxy.routes import RouteTable, Service
from resources import clock
from resources.models import Host, HostStatus
from sessions import notify
from sessions.models import Session
from tests.factories import make_host
from tests.wait import SECONDS, until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _told_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read everything again once an hour: what these tests see in time has come by a message."""
    monkeypatch.setattr(feed, "RECONCILE_SECONDS", 3600)
    until(lambda: subscribers() == 0)


@pytest.fixture
def deployment(transactional_db: None) -> Deployment:
    return serving_deployment(2, host=make_host(name=settings.COMPUTE_HOST_NAME))


@pytest.fixture
def owner(deployment: Deployment) -> User:
    return deployment.owner


@pytest.fixture
def table() -> RouteTable:
    return RouteTable()


@pytest_asyncio.fixture
async def fed(deployment: Deployment, table: RouteTable) -> AsyncIterator[None]:
    async with synchronized(table):
        await soon(lambda: subscribers() == 1)
        yield


async def soon(look: Callable[[], object]) -> None:
    async with asyncio.timeout(SECONDS):
        while not look():
            await asyncio.sleep(0.01)


def subscribers() -> int:
    return dict(notify.proxies_redis().pubsub_numsub(notify.ROUTES_CHANNEL))[notify.ROUTES_CHANNEL.encode()]


def in_table(table: RouteTable, deployment: Deployment) -> Service:
    service = table.get_service(deployment.label)
    assert service is not None
    return service


@pytest.mark.usefixtures("fed")
async def test_replicas_are_in_the_table_with_their_routes(deployment: Deployment, table: RouteTable) -> None:
    service = in_table(table, deployment)
    assert [each.takes_requests for each in service.replicas] == [True, True]
    assert all(table.get(each.route.label) == each.route for each in service.replicas)
    assert (service.owner, service.is_public, service.queue) == (deployment.owner_id, False, 100)


@pytest.mark.usefixtures("fed")
async def test_a_replica_that_is_unhealthy_takes_no_requests(deployment: Deployment, table: RouteTable) -> None:
    first = await deployment.replica_rows.afirst()
    assert first is not None
    await Replica.objects.filter(pk=first.pk).aupdate(health=ReplicaHealth.UNHEALTHY.value)
    await database_sync_to_async(events.changed)(deployment.pk)
    await soon(lambda: sum(each.takes_requests for each in in_table(table, deployment).replicas) == 1)


@pytest.mark.usefixtures("fed")
async def test_a_healthy_replica_takes_requests_before_the_read(deployment: Deployment, table: RouteTable) -> None:
    first = await deployment.replica_rows.select_related("session").afirst()
    assert first is not None
    await Replica.objects.filter(pk=first.pk).aupdate(health=ReplicaHealth.STARTING.value)
    await database_sync_to_async(events.changed)(deployment.pk)
    await soon(lambda: sum(each.takes_requests for each in in_table(table, deployment).replicas) == 1)
    taking: list[int] = []
    table.on_change(lambda: taking.append(sum(each.takes_requests for each in in_table(table, deployment).replicas)))
    message = {"deployment": deployment.pk, "healthy": first.pk, "attempt": first.session.attempt}
    await database_sync_to_async(notify.publish)(message)
    await soon(lambda: taking[-1:] == [1])  # what the rows say
    assert taking[0] == 2


@pytest.mark.usefixtures("fed")
async def test_tokens_come_and_go_at_once(deployment: Deployment, owner: User, table: RouteTable) -> None:
    make = database_sync_to_async(tokens.create_token)
    token, _ = await make(deployment, name="ci", actor=owner, rate_per_minute=7)
    assert [(each.pk, each.rate) for each in in_table(table, deployment).tokens] == [(token.pk, 7)]
    tried, _ = await database_sync_to_async(trials.trial_token)(deployment, actor=owner)
    assert [each.pk for each in in_table(table, deployment).tokens] == [token.pk, tried.pk]
    await database_sync_to_async(tokens.revoke_token)(tried, actor=owner)
    await database_sync_to_async(tokens.revoke_token)(token, actor=owner)
    await soon(lambda: not in_table(table, deployment).tokens)


@pytest.mark.usefixtures("fed")
async def test_the_end_is_known_at_once(deployment: Deployment, owner: User, table: RouteTable) -> None:
    await database_sync_to_async(services.end)(deployment, actor=owner)
    await soon(lambda: table.get_service(deployment.label) is None)


@pytest.mark.usefixtures("fed")
async def test_a_withdrawn_replica_is_not_offered_again(deployment: Deployment, table: RouteTable) -> None:
    first = await deployment.replica_rows.afirst()
    assert first is not None
    await database_sync_to_async(notify.publish)({"withdraw": first.pk, "reply": "none"})
    await database_sync_to_async(events.changed)(deployment.pk)
    await soon(lambda: len(in_table(table, deployment).replicas) == 1)
    assert all(route.session != first.pk for route in table)


@pytest.mark.usefixtures("fed")
async def test_a_replica_that_went_on_is_offered_at_once(deployment: Deployment, table: RouteTable) -> None:
    first = await deployment.replica_rows.select_related("session").afirst()
    assert first is not None
    message = {"withdraw": first.pk, "attempt": first.session.attempt, "reply": "none"}
    await database_sync_to_async(notify.publish)(message)
    await database_sync_to_async(events.changed)(deployment.pk)
    await soon(lambda: len(in_table(table, deployment).replicas) == 1)
    await Session.objects.filter(pk=first.pk).aupdate(attempt=first.session.attempt + 1)
    await database_sync_to_async(events.changed)(deployment.pk)
    await soon(lambda: len(in_table(table, deployment).replicas) == 2)
    assert any(route.session == first.pk for route in table)


async def test_an_unknown_label_is_read_on_demand(deployment: Deployment, table: RouteTable) -> None:
    async with synchronized(table):
        table.replace_services([])
        await table.refresh(deployment.label)
        assert in_table(table, deployment).deployment == deployment.pk


def test_a_silent_host_gets_no_requests(deployment: Deployment) -> None:
    Host.objects.update(status=HostStatus.LOST.value)
    [service] = service_routes.read().services
    assert [each.takes_requests for each in service.replicas] == [False, False]


def test_expired_tokens_are_left_out(deployment: Deployment) -> None:
    token = tokens.create_token(deployment, name="ci", actor=deployment.owner).token
    type(token).objects.update(expires_at=clock.now() - timedelta(seconds=1))
    [service] = service_routes.read().services
    assert service.tokens == ()


def test_a_policy_withdraws_public_access(deployment: Deployment) -> None:
    services.change(deployment, {"is_public": True}, actor=deployment.owner)
    assert service_routes.read([deployment.pk]).services[0].is_public
    deployment.owner.policy.allow_public_apps = False
    deployment.owner.policy.save()
    assert not service_routes.read([deployment.pk]).services[0].is_public


def test_gateways_know_routes_but_no_services(deployment: Deployment) -> None:
    found = HostRoutes().read_services([deployment.pk])
    assert (found.services, len(found.routes)) == ([], 2)


def test_the_number_of_queries_is_that_of_the_tables(
    deployment: Deployment, django_assert_num_queries: Callable[[int], object]
) -> None:
    with django_assert_num_queries(4):  # type: ignore[attr-defined]
        service_routes.read()


async def test_a_host_name_is_known_and_gone_at_once(
    fed: None, deployment: Deployment, owner: User, table: RouteTable
) -> None:
    await database_sync_to_async(hosts.set_hosts)(deployment, ["models.example.org"], actor=owner)
    await soon(lambda: table.at_host(b"models.example.org"))
    assert table.at_host(b"models.example.org") == table.get_service(deployment.label)
    await database_sync_to_async(hosts.set_hosts)(deployment, [], actor=owner)
    await soon(lambda: table.at_host(b"models.example.org") is None)
