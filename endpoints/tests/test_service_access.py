"""Who is handed over to the address of a deployment, and what a ticket is good for."""

from urllib.parse import urlencode

import pytest
from django.conf import settings
from django.shortcuts import resolve_url
from django.test import Client

from accounts.models import Membership, User
from deployments import hosts, services
from deployments.models import Deployment, DeploymentTicket
from deployments.tests.making import make_deployment
from endpoints.handoff import tickets
from proxy.authorization.signing import digest
from sessions.access.app_addresses import site
from tests.factories import make_endpoint, make_project, make_user

pytestmark = pytest.mark.django_db
STATE = digest("nonce")


def ask(client: Client, label: str, path: str = "/v1/models", **more: str) -> tuple[int, str]:
    response = client.get(f"/apps/authorize?{urlencode({'h': label, 's': STATE, 'next': path} | more)}")
    return response.status_code, response.headers.get("Location", "")


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def ticket_of(deployment: Deployment, user: User) -> str:
    return tickets.issue_for(deployment, user=user, login="l" * 64, state=STATE, path="/")


def test_the_owner_is_handed_over_with_a_ticket() -> None:
    deployment = make_deployment()
    status, location = ask(signed_in(deployment.owner), deployment.label)
    assert status == 303
    assert location.startswith(f"{site().origin(deployment.label)}/.gp/callback?t=")
    grant, path = tickets.redeem(location.partition("t=")[2], deployment.label, STATE) or (None, "")
    assert grant is not None
    assert (grant.label, grant.user, grant.epoch, path) == (deployment.label, deployment.owner_id, 1, "/v1/models")


def test_strangers_learn_nothing_and_the_anonymous_sign_in() -> None:
    deployment = make_deployment()
    assert ask(signed_in(make_user()), deployment.label)[0] == 404
    assert ask(signed_in(make_user()), "model--" + "a" * 16)[0] == 404
    status, location = ask(Client(), deployment.label)
    assert (status, location.partition("?")[0]) == (302, resolve_url(settings.LOGIN_URL))


def test_members_of_the_project_are_let_in_until_they_leave() -> None:
    owner, member = make_user(), make_user()
    deployment = make_deployment(owner)
    Deployment.objects.update(project=make_project(owner, member))
    assert ask(signed_in(member), deployment.label)[0] == 303
    secret = ticket_of(deployment, member)
    Membership.objects.get(user=member).delete()
    assert Deployment.objects.get().epoch == 2
    assert tickets.redeem(secret, deployment.label, STATE) is None
    assert ask(signed_in(member), deployment.label)[0] == 404


def test_a_superadmin_is_let_in_and_recorded() -> None:
    deployment, admin = make_deployment(), make_user(is_superuser=True)
    assert ask(signed_in(admin), deployment.label)[0] == 303
    event = deployment.events.first()
    assert event is not None
    assert (event.what, event.actor) == ("Used by a superadmin.", admin)


def test_a_ticket_is_good_once_for_one_address_and_browser() -> None:
    deployment = make_deployment()
    owner = deployment.owner
    other = make_deployment(owner, name="other")
    endpoint = make_endpoint()
    for label, state in (
        (other.label, STATE),
        (f"other--{deployment.pk}", STATE),
        (endpoint.label, STATE),
        (deployment.label, digest("another nonce")),
    ):
        secret = ticket_of(deployment, owner)
        assert tickets.redeem(secret, label, state) is None
        assert tickets.redeem(secret, deployment.label, STATE) is None, "it was used up"
    secret = ticket_of(deployment, owner)
    assert tickets.redeem(secret, deployment.label, STATE)
    assert tickets.redeem(secret, deployment.label, STATE) is None


def test_a_ticket_of_an_app_opens_no_deployment() -> None:
    deployment, endpoint = make_deployment(), make_endpoint()
    owner = endpoint.session.owner
    secret = tickets.issue(endpoint, user=owner, login="l" * 64, state=STATE, path="/")
    assert tickets.redeem(secret, deployment.label, STATE) is None


def test_no_ticket_outlives_its_deployment_or_user() -> None:
    deployment = make_deployment()
    secret = ticket_of(deployment, deployment.owner)
    services.end(deployment, actor=deployment.owner)
    assert tickets.redeem(secret, deployment.label, STATE) is None
    deployment = make_deployment()
    secret = ticket_of(deployment, deployment.owner)
    User.objects.filter(pk=deployment.owner_id).update(is_active=False)
    assert tickets.redeem(secret, deployment.label, STATE) is None


def test_a_foreign_path_is_not_returned_to() -> None:
    deployment = make_deployment()
    ask(signed_in(deployment.owner), deployment.label, path="//evil.example")
    assert DeploymentTicket.objects.get().next == "/"


def test_a_hand_over_goes_to_the_deployments_own_name_alone() -> None:
    deployment, other, admin = make_deployment(), make_deployment(), make_user(is_superuser=True)
    hosts.set_hosts(deployment, ["models.example.org"], actor=admin)
    hosts.set_hosts(other, ["other.example.org"], actor=admin)
    browser = signed_in(deployment.owner)
    status, location = ask(browser, deployment.label, at="models.example.org")
    assert (status, location.partition("?")[0]) == (303, f"{site().origin_of('models.example.org')}/.gp/callback")
    for name in ("other.example.org", "evil.example", "models.example.org:81", "Models.example.org"):
        assert ask(browser, deployment.label, at=name)[0] == 404
    hosts.set_hosts(deployment, [], actor=admin)
    assert ask(browser, deployment.label, at="models.example.org")[0] == 404
