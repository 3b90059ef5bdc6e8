"""Deployments where apps are told apart by port: each has one of the pool for as long as it lives."""

import pytest
from pytest_django import Settings

from deployments import addresses, services
from deployments.models import Deployment
from deployments.tests.making import make_deployment
from endpoints.routing import ports, service_routes
from endpoints.tests.test_service_access import ask, signed_in
from sessions.errors import RejectedError
from sessions.models import AppPort
from tests.factories import make_endpoint, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _by_port(settings: Settings) -> None:
    settings.COMPUTE_APPS_DOMAIN = ""
    settings.COMPUTE_PUBLIC_URL = "http://10.0.0.5:8000"
    settings.COMPUTE_APP_PORTS = "10200-10201"
    settings.ALLOWED_HOSTS = ["10.0.0.5", "testserver"]


def test_a_deployment_has_a_port_until_it_ends() -> None:
    first = make_deployment()
    assert first.listen_port in (10200, 10201)
    assert addresses.origin(first) == f"http://10.0.0.5:{first.listen_port}"
    assert service_routes.read([first.pk]).services[0].listen_port == first.listen_port
    assert AppPort.objects.get().user == first.owner
    services.set_replicas(first, 0, actor=first.owner)
    second = make_deployment()
    assert {first.listen_port, second.listen_port} == {10200, 10201}
    services.end(first, actor=first.owner)
    assert make_deployment().listen_port == first.listen_port


def test_apps_and_deployments_share_the_ports() -> None:
    make_endpoint(listen_port=10200)
    taken = make_deployment()
    assert taken.listen_port == 10201
    with pytest.raises(RejectedError, match="All ports for apps are taken"):
        make_deployment()
    assert Deployment.objects.get() == taken
    with pytest.raises(RejectedError, match="All ports for apps are taken"):
        ports.assign(make_endpoint(), None)


def test_a_deployment_of_a_time_with_a_domain_gets_one(settings: Settings) -> None:
    settings.COMPUTE_APPS_DOMAIN = "apps.localhost"
    old = [make_deployment() for _ in range(3)]
    assert {each.listen_port for each in old} == {None}
    settings.COMPUTE_APPS_DOMAIN = ""
    assert addresses.origin(old[0]) == ""
    ports.assign_to_deployments()
    ports.assign_to_deployments()
    found = [Deployment.objects.get(pk=each.pk).listen_port for each in old]
    assert ({*found[:2]}, found[2]) == ({10200, 10201}, None)
    settings.COMPUTE_APPS_DOMAIN = "apps.localhost"
    assert service_routes.read([old[0].pk]).services[0].listen_port is None


def test_a_hand_over_goes_to_the_port() -> None:
    deployment = make_deployment()
    status, location = ask(signed_in(deployment.owner), deployment.label)
    assert (status, location.partition("?")[0]) == (303, f"{addresses.origin(deployment)}/.gp/callback")


def test_one_owner_takes_a_tenth_of_the_ports(settings: Settings) -> None:
    settings.COMPUTE_APP_PORTS = "10200-10219"
    owner = make_user()
    first, _ = make_deployment(owner, name="a"), make_deployment(owner, name="b")
    with pytest.raises(RejectedError, match="hold at most 2 of the ports"):
        make_deployment(owner, name="c")
    assert make_deployment().listen_port
    services.end(first, actor=owner)
    assert make_deployment(owner, name="c").listen_port


def test_others_get_ports_after_one_who_has_enough(settings: Settings) -> None:
    settings.COMPUTE_APPS_DOMAIN = "apps.localhost"
    owner = make_user()
    old = [make_deployment(owner, name="a"), make_deployment(owner, name="b"), make_deployment()]
    settings.COMPUTE_APPS_DOMAIN = ""
    ports.assign_to_deployments()
    found = [Deployment.objects.get(pk=each.pk).listen_port for each in old]
    assert [bool(port) for port in found] == [True, False, True]
