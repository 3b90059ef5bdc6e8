"""Host names that superadmins give to deployments: the rules, the command, and the API."""

from collections.abc import Sequence
from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings

from accounts.models import AuditEntry, User
from deployments import addresses, hosts, services
from deployments.models import Deployment, DeploymentHost
from deployments.tests.making import make_deployment
from proxy.site import Site
from sessions.errors import RejectedError
from tests.api import client_of
from tests.factories import make_project, make_user

PLACE = Site(platform_url="https://gpu.example.org", apps_domain="apps.example.net")
NAME = "models.example.org"


@pytest.fixture
def admin(db: None) -> User:
    return make_user(is_superuser=True)


def names_of(deployment: Deployment) -> list[str]:
    return list(deployment.hosts.values_list("name", flat=True))


@pytest.mark.parametrize("name", [NAME, "a.b", "x-1.example", "xn--9q5b.example.org", "deep.gpu.example.org"])
def test_a_host_name_may_be_given(name: str) -> None:
    assert hosts.names_error([name], PLACE) == ""


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["gpu.example.org"], "platform's own"),
        (["example.org"], "above it"),
        (["apps.example.net"], "platform's own"),
        (["chat--d1.apps.example.net"], "names of apps"),
        (["x.y.apps.example.net"], "names of apps"),
        *[([name], "no host name") for name in ("", "models", "10.0.0.5", "::1", "a..b", "-a.example", "a-.example")],
        *[([name], "no host name") for name in ("https://a.b", "a.b:443", "a.b/", "a_b.example", "*.a.b", "a.b.")],
        *[
            ([name], "no host name")
            for name in ("모델.example.org", "A.example", f"{'a' * 64}.example", "a.b\n", "a b.c")
        ],
        ([f"{'a.' * 130}example"], "no host name"),
        ([NAME, NAME], "once"),
        ([f"m{number}.example.org" for number in range(11)], "at most 10"),
    ],
)
def test_other_host_names_are_refused(names: Sequence[str], why: str) -> None:
    assert why in hosts.names_error(names, PLACE)


def test_allowed_hosts_are_the_platforms_own(settings: Settings) -> None:
    settings.ALLOWED_HOSTS = ["Old.example.org", "127.0.0.1", ".example.com", "*"]
    assert "platform's own" in hosts.names_error(["old.example.org"], PLACE)
    assert hosts.names_error(["models.example.org", "models.example.com"], PLACE) == ""


def test_names_are_given_replaced_and_removed(admin: User) -> None:
    deployment = make_deployment()
    hosts.set_hosts(deployment, [" Models.Example.org ", "b.example.org"], actor=admin)
    assert names_of(deployment) == ["b.example.org", NAME]
    hosts.set_hosts(deployment, [NAME], actor=admin)
    kept = DeploymentHost.objects.get()
    hosts.set_hosts(deployment, [NAME], actor=admin)
    assert (kept.name, kept.created_by) == (NAME, admin)
    assert AuditEntry.objects.filter(action="set host names", actor=admin).count() == 2
    assert [event.what for event in deployment.events.all()[:2]] == [
        "Its host names are models.example.org.",
        "Its host names are b.example.org, models.example.org.",
    ]
    hosts.set_hosts(deployment, [], actor=admin)
    assert names_of(deployment) == []


def test_a_name_leads_to_one_deployment(admin: User) -> None:
    first, second = make_deployment(), make_deployment()
    hosts.set_hosts(first, [NAME], actor=admin)
    with pytest.raises(RejectedError, match=f"{NAME} leads to the deployment {first.pk} already"):
        hosts.set_hosts(second, ["free.example.org", NAME.upper()], actor=admin)
    assert names_of(second) == []
    services.end(first, actor=admin)
    hosts.set_hosts(second, [NAME], actor=admin)
    assert names_of(second) == [NAME]
    with pytest.raises(RejectedError, match="has ended"):
        hosts.set_hosts(first, ["other.example.org"], actor=admin)


def test_the_first_name_is_the_address(admin: User) -> None:
    deployment = make_deployment()
    usual = addresses.origin(deployment)
    assert addresses.first_origin(deployment) == usual
    hosts.set_hosts(deployment, [NAME], actor=admin)
    assert addresses.origins(deployment) == [addresses.origin_at(deployment, NAME), usual]
    assert addresses.origin_at(deployment, "other.example.org") == ""


def test_superadmins_alone_give_names_over_the_api(admin: User) -> None:
    owner, member = make_user(), make_user()
    deployment = make_deployment(owner, project=make_project(owner, member))
    path = f"/api/v1/deployments/{deployment.pk}/hosts/"
    for user in (owner, member, make_user()):
        assert client_of(user).put(path, {"hosts": [NAME]}, format="json").status_code == 404
    told: Any = client_of(admin).put(path, {"hosts": [NAME]}, format="json").json()
    assert (told["hosts"], told["url"]) == ([NAME], addresses.origin_at(deployment, NAME))
    assert client_of(owner).get(f"/api/v1/deployments/{deployment.pk}/").json()["hosts"] == [NAME]
    for wrong in (["no name"], [NAME] * 11, "x", [1, None]):
        refused = client_of(admin).put(path, {"hosts": wrong}, format="json")
        assert (refused.status_code, *(field[:5] for field in refused.json()["errors"])) == (400, "hosts")
    assert names_of(deployment) == [NAME]


def test_names_are_given_in_the_administration(admin: User, client: Client) -> None:
    deployment = make_deployment()
    client.force_login(admin)
    added = client.post(
        "/admin/deployments/deploymenthost/add/", {"name": " Models.example.org", "deployment": deployment.pk}
    )
    assert (added.status_code, names_of(deployment)) == (302, [NAME])
    for wrong in ("no name", NAME):
        refused = client.post(
            "/admin/deployments/deploymenthost/add/", {"name": wrong, "deployment": make_deployment().pk}
        )
        assert (refused.status_code, "name" in refused.context["adminform"].form.errors) == (200, True)
    gone = client.post(f"/admin/deployments/deploymenthost/{NAME}/delete/", {"post": "yes"})
    assert (gone.status_code, names_of(deployment)) == (302, [])
    assert [event.what for event in deployment.events.all()[:1]] == ["Removed all host names."]
    client.force_login(make_user(is_staff=True))
    assert client.get("/admin/deployments/deploymenthost/add/").status_code == 403
