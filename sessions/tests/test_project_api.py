"""API of projects: superadmins make them, managers choose their members, and members see them."""

from http import HTTPStatus

import pytest
from pytest_django import DjangoAssertNumQueries

from accounts.invitations import services as invitations
from accounts.models import AccountInvitation, AuditEntry, Membership, Project
from sessions.lifecycle import Status
from tests.api import client_of
from tests.factories import make_group, make_policy, make_project, make_session, make_user, run_session

pytestmark = pytest.mark.django_db
URL = "/api/v1/projects/"


def test_superadmins_create_change_and_delete_projects() -> None:
    admin, policy, group = make_user(is_superuser=True), make_policy(name="team", fgpu=2000), make_group(name="a100")
    client = client_of(admin)
    body = {"name": "vision", "policy": "team", "share_weight": 300, "resource_groups": ["a100"]}
    made = client.post(URL, body)
    assert made.status_code == HTTPStatus.CREATED, made.content
    answer = made.json()
    assert (answer["limits"]["fgpu"], answer["used"]["sessions"], answer["role"]) == ("2", 0, None)
    project = Project.objects.get(name="vision")
    assert (project.policy, project.share_weight, list(project.resource_groups.all())) == (policy, 300, [group])
    again = client.post(URL, {"name": "VISION"})
    assert again.status_code == HTTPStatus.BAD_REQUEST
    assert "name" in again.json()["errors"] or again.json()["detail"]
    changed = client.patch(f"{URL}{project.pk}/", {"policy": None, "is_active": False})
    assert changed.status_code == HTTPStatus.OK, changed.content
    project.refresh_from_db()
    assert (project.policy, project.is_active, project.share_weight) == (None, False, 300)
    assert [entry.action for entry in AuditEntry.objects.order_by("pk")] == ["added", "changed"]
    run_session(project=project)
    assert client.delete(f"{URL}{project.pk}/").status_code == HTTPStatus.CONFLICT
    assert client.delete(f"{URL}{make_project().pk}/").status_code == HTTPStatus.NO_CONTENT


def test_managers_choose_members_and_nothing_else() -> None:
    manager, member, newcomer = make_user(), make_user(), make_user(email="new@example.org")
    project = make_project(member, managers=[manager], name="vision")
    client, members = client_of(manager), f"{URL}{project.pk}/members/"
    assert client.patch(f"{URL}{project.pk}/", {"share_weight": 900}).status_code == HTTPStatus.FORBIDDEN
    assert client.post(URL, {"name": "mine"}).status_code == HTTPStatus.FORBIDDEN
    made = client.post(members, {"email": "NEW@example.org"})
    assert made.status_code == HTTPStatus.CREATED, made.content
    assert client.post(members, {"email": "new@example.org"}).json()["errors"]["email"]
    assert client.post(members, {"email": "nobody@example.org"}).json()["errors"]["email"]
    one = f"{members}{made.json()['id']}/"
    assert client.patch(one, {"role": "manager"}).json()["role"] == "manager"
    assert [row["role"] for row in client.get(members).json()["results"]].count("manager") == 2
    waiting, running = make_session(owner=newcomer, project=project), run_session(owner=newcomer, project=project)
    assert client.delete(one).status_code == HTTPStatus.NO_CONTENT
    waiting.refresh_from_db()
    running.refresh_from_db()
    assert (waiting.status, running.status) == (Status.CANCELLED, Status.RUNNING)
    acts = list(AuditEntry.objects.order_by("pk").values_list("actor", "action"))
    assert acts == [(manager.pk, "added"), (manager.pk, "changed"), (manager.pk, "deleted")]


def test_members_see_a_project_and_may_leave_it() -> None:
    member, other, stranger = make_user(), make_user(), make_user()
    project = make_project(member, other)
    client, members = client_of(member), f"{URL}{project.pk}/members/"
    assert client.get(f"{URL}{project.pk}/").json()["role"] == "member"
    assert client.post(members, {"email": stranger.email}).status_code == HTTPStatus.FORBIDDEN
    theirs, mine = (Membership.objects.get(user=user).pk for user in (other, member))
    assert client.delete(f"{members}{theirs}/").status_code == HTTPStatus.FORBIDDEN
    assert client.patch(f"{members}{mine}/", {"role": "manager"}).status_code == HTTPStatus.FORBIDDEN
    assert client.delete(f"{members}{mine}/").status_code == HTTPStatus.NO_CONTENT
    for address in (f"{URL}{project.pk}/", members, f"{members}{theirs}/"):
        assert client.get(address).status_code in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)
    assert client_of(stranger).get(URL).json()["results"] == []


def test_listing_projects_takes_a_constant_number_of_queries(
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    user = make_user()
    for _ in range(5):
        make_project(user, make_user(), make_user()).resource_groups.add(make_group())
    with django_assert_max_num_queries(6):
        found = client_of(user).get(URL).json()["results"]
    assert [row["member_count"] for row in found] == [3] * 5


def test_invitations_of_managers_neither_replace_others_nor_show_links() -> None:
    manager, member, admin = make_user(), make_user(), make_user(is_superuser=True)
    project, other = make_project(member, managers=[manager]), make_project()
    client, path = client_of(manager), f"{URL}{project.pk}/invitations/"
    made = client.post(path, {"email": "KIM@example.org"})
    assert (made.status_code, sorted(made.json())) == (201, ["created_at", "email", "expires_at", "id"])
    invitations.invite("boss@example.org", policy=make_policy(name="large"), project=other, by=admin)
    assert "not to this project" in client.post(path, {"email": "boss@example.org"}).json()["errors"]["email"][0]
    assert AccountInvitation.objects.get(email="boss@example.org").policy.name == "large"
    assert "account with this address" in client.post(path, {"email": member.email}).json()["errors"]["email"][0]
    AccountInvitation.objects.filter(email="kim@example.org").update(policy=make_policy(name="chosen"))
    assert client.post(path, {"email": "kim@example.org"}).status_code == HTTPStatus.CREATED
    kept = AccountInvitation.objects.get(email="kim@example.org")
    assert (kept.policy.name, kept.project) == ("chosen", project)
    assert [row["email"] for row in client.get(path).json()["results"]] == ["kim@example.org"]
    assert client_of(member).get(path).status_code == client_of(member).post(path, {}).status_code == 403
    assert client_of(make_user()).get(path).status_code == HTTPStatus.NOT_FOUND
    assert client.delete(f"{path}{AccountInvitation.objects.get(project=other).pk}/").status_code == 404
    assert client.delete(f"{path}{kept.pk}/").status_code == HTTPStatus.NO_CONTENT
    acts = AuditEntry.objects.filter(actor=manager).order_by("pk").values_list("action", flat=True)
    assert list(acts) == ["invite", "invite", "withdraw invitation"]
