"""Which rows come to routes: nothing is led anywhere that is not READY, RUNNING, known and within the networks."""

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries, Settings

from endpoints.routing import routes
from proxy.routes import AppCondition, Route
from sessions.lifecycle import Reason, Status
from sessions.models import AppObstacle, EndpointState
from tests.factories import make_endpoint, make_host, make_policy, make_user, run_reachable_session, run_session

pytestmark = pytest.mark.django_db


def test_a_ready_endpoint_has_a_route() -> None:
    endpoint = make_endpoint(token="t", epoch=3, listen_port=10200)
    session = endpoint.session
    assert routes.read() == [
        Route(
            label=f"p8080--{session.pk}",
            session=session.pk,
            attempt=session.attempt,
            owner=session.owner_id,
            address=str(session.address),
            port=8080,
            epoch=3,
            token="t",
            listen_port=10200,
        )
    ]


@pytest.mark.parametrize(
    ("state", "obstacle", "told"),
    [
        (EndpointState.STARTING, "", "starting"),
        (EndpointState.STARTING, AppObstacle.LOOPBACK, "loopback"),
        (EndpointState.FAILED, AppObstacle.EXITED, "exited"),
        (EndpointState.FAILED, "", "failed"),
        (EndpointState.READY, AppObstacle.EXITED, "exited"),
    ],
)
def test_a_route_says_what_the_host_found(state: EndpointState, obstacle: str, told: str) -> None:
    endpoint = make_endpoint(state=state.value, obstacle=obstacle, detail="Why.", output="last words")
    (route,) = routes.read()
    assert route.is_ready == (state == EndpointState.READY)
    assert route.condition == AppCondition(told, endpoint.title, "Why.", "last words")


def test_gateways_route_to_ready_apps_alone(settings: Settings) -> None:
    endpoint = make_endpoint(state=EndpointState.STARTING.value)
    settings.COMPUTE_HOST_NAME = str(endpoint.session.host)
    assert routes.read_here() == []


def test_a_closed_endpoint_has_no_route() -> None:
    make_endpoint(state=EndpointState.CLOSED.value)
    assert routes.read() == []


def test_an_ending_session_has_no_routes() -> None:
    endpoint = make_endpoint()
    endpoint.session.move_to(Status.TERMINATING, Reason.USER_REQUEST)
    assert routes.read() == []


def test_a_session_without_an_address_has_no_routes() -> None:
    session = run_reachable_session()
    session.address = None
    session.save()
    make_endpoint(session)
    assert routes.read() == []


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "8.8.8.8", "::1", "fe80::1"])
def test_an_address_outside_the_subnets_has_no_route(address: str) -> None:
    session = run_reachable_session()
    session.address = address
    session.save()
    make_endpoint(session)
    assert routes.read() == []


def test_the_settings_name_the_subnets(settings: Settings) -> None:
    make_endpoint()
    settings.COMPUTE_SESSION_SUBNETS = ["192.168.0.0/16"]
    assert routes.read() == []


def test_a_remote_session_needs_its_hosts_gateway() -> None:
    host = make_host(gateway_url="http://10.0.0.5:8010")
    with_gateway = run_session(host=host)
    without_gateway = run_session(host=make_host())
    for session in (with_gateway, without_gateway):
        session.address = "172.17.0.2"
        session.save()
        make_endpoint(session)
    (route,) = routes.read()
    assert (route.session, route.gateway) == (with_gateway.pk, "http://10.0.0.5:8010")
    assert "gateway" in routes.obstacle(without_gateway)


def test_publishing_ends_with_time_owner_or_policy() -> None:
    now = timezone.now()
    owner = make_user(policy=make_policy(allow_public_apps=False))
    make_endpoint(is_public=True)
    make_endpoint(is_public=True, public_until=now)
    make_endpoint(run_reachable_session(owner=owner), is_public=True)
    make_endpoint(run_reachable_session(owner=make_user(is_active=False)), is_public=True)
    assert [route.is_public for route in routes.read()] == [True, False, False, False]


def test_routes_of_some_sessions_take_one_query(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    wanted, _ = make_endpoint(), make_endpoint()
    make_endpoint(wanted.session, app="p9090", port=9090)
    with django_assert_num_queries(1):
        found = routes.read([wanted.session_id])
    assert {route.label for route in found} == {f"p8080--{wanted.session_id}", f"p9090--{wanted.session_id}"}
