"""Pages of projects: the choice of one at launch, who sees what of it, and its members."""

from http import HTTPStatus

import pytest
from pytest_django import DjangoAssertNumQueries

from accounts.models import AccountInvitation, Membership
from pages.launch.offer import LaunchOffer
from pages.launch.queries import launch_facts
from sessions.models import Session
from tests.api import client_of
from tests.factories import make_host, make_image, make_policy, make_project, make_session, make_user, run_session
from tests.web import browser_of, text_of

pytestmark = pytest.mark.django_db


def test_wizard_and_limits_count_for_the_chosen_project() -> None:
    host = make_host(gpus=2)
    policy = make_policy(fgpu=1000, max_pending=4, max_per_launch=3)
    owner, group = make_user(policy=make_policy(fgpu=2000, max_pending=10)), host.group
    project = make_project(owner, name="vision", policy=policy)
    run_session(host=host, owner=owner, project=project, fgpu=400)
    make_session(owner=owner, project=project, resource_group=group)
    answer = client_of(owner).get("/api/v1/me/limits/", {"project": "vision"})
    assert answer.status_code == HTTPStatus.OK, answer.content
    limits = answer.json()
    assert (limits["remaining"]["fgpu"], limits["remaining"]["pending"], limits["max_per_launch"]) == ("0.6", 3, 3)
    assert limits["project"]["used"]["sessions"] == 1
    facts = launch_facts(LaunchOffer(owner))["left"]
    assert (facts[""]["fgpu"], facts[str(project.pk)]["fgpu"], facts[str(project.pk)]["perLaunch"]) == (1600, 600, 3)
    image = make_image()
    form = {"image": image.pk, "project": project.pk, "resource_group": group.pk, "preset": "", "count": 1}
    form |= {"cpu": 1, "memory": "1g", "shared_memory": "64m", "fgpu": "1.01"}
    browser = browser_of(owner)
    assert "The project vision allows at most 1 fGPU." in browser.post("/sessions/launch/", form).content.decode()
    assert browser.post("/sessions/launch/", form | {"fgpu": "0.5"}).status_code == HTTPStatus.FOUND
    started = Session.objects.get(fgpu=500)
    assert started.project == project
    page = text_of(browser, f"/sessions/launch/?again={started.pk}")
    assert f'<option value="{project.pk}" selected>vision</option>' in page


def test_members_see_their_own_sessions_and_managers_all() -> None:
    manager, member, other = make_user(), make_user(), make_user()
    project = make_project(member, other, managers=[manager], name="vision", policy=make_policy(fgpu=4000))
    host = make_host(gpus=2)
    mine = run_session(host=host, owner=member, project=project, fgpu=400)
    run_session(host=host, owner=member)
    theirs = make_session(owner=other, project=project, resource_group=host.group, fgpu=100)
    page, whole = text_of(browser_of(member), "/projects/"), text_of(browser_of(manager), f"/projects/{project.pk}/")
    assert "3 members" in page
    assert mine.name in whole
    assert theirs.name in whole
    assert 'value="400" max="4000"' in whole
    part = text_of(browser_of(member), f"/projects/{project.pk}/")
    assert mine.name in part
    assert theirs.name not in part
    assert "Add a member" not in part
    assert browser_of(make_user()).get(f"/projects/{project.pk}/").status_code == HTTPStatus.NOT_FOUND


def test_ends_are_undone_on_the_page_of_a_project() -> None:
    owner, manager, other = make_user(), make_user(), make_user()
    project = make_project(owner, name="vision", policy=make_policy())
    for each in (manager, other):
        Membership.objects.create(project=project, user=each, role="manager")
    session = make_session(owner=owner, project=project)
    browser_of(manager).post(f"/sessions/{session.pk}/terminate/", headers={"HX-Request": "true"})
    for viewer in (manager, other):
        page = text_of(browser_of(viewer), f"/projects/{project.pk}/")
        assert ("Ends in a few seconds." in page, f'id="undo-{session.pk}"' in page) == (True, viewer == manager)


def test_managers_add_change_and_remove_members() -> None:
    manager, member, newcomer = make_user(), make_user(), make_user(email="new@example.org")
    project = make_project(member, managers=[manager])
    page, browser = f"/projects/{project.pk}/", browser_of(manager)
    refused = browser.post(f"{page}members/", {"email": "nobody@example.org", "role": "member"})
    assert (refused.status_code, b"There is no account" in refused.content) == (HTTPStatus.UNPROCESSABLE_ENTITY, True)
    assert browser.post(f"{page}members/", {"email": newcomer.email, "role": "member"}).status_code == HTTPStatus.FOUND
    theirs = project.memberships.get(user=newcomer)
    assert browser_of(member).post(f"{page}members/{theirs.pk}/remove/").status_code == HTTPStatus.NOT_FOUND
    assert browser_of(member).post(f"{page}members/{theirs.pk}/role/").status_code == HTTPStatus.NOT_FOUND
    browser.post(f"{page}members/{theirs.pk}/role/", {"role": "manager"})
    assert project.memberships.get(user=newcomer).role == "manager"
    browser.post(f"{page}members/{theirs.pk}/remove/")
    assert not project.memberships.filter(user=newcomer).exists()
    browser_of(member).post(f"{page}members/{project.memberships.get(user=member).pk}/remove/")
    assert not project.memberships.filter(user=member).exists()


def test_managers_invite_who_has_no_account() -> None:
    manager, member, taken = make_user(), make_user(), make_user(email="taken@example.org")
    project = make_project(member, managers=[manager])
    page, browser = f"/projects/{project.pk}/", browser_of(manager)
    body = {"email": "Kim@example.org", "role": "manager", "invites": "on"}
    assert b"becomes a member" in browser.post(f"{page}members/", body).content
    assert browser.post(f"{page}members/", body | {"role": "member"}).status_code == HTTPStatus.FOUND
    invitation = AccountInvitation.objects.get(email="kim@example.org")
    assert (invitation.project, invitation.policy.name, invitation.invited_by) == (project, "default", manager)
    assert "kim@example.org" in text_of(browser, page)
    assert "kim@example.org" not in text_of(browser_of(member), page)
    assert browser.post(f"{page}members/", body | {"email": taken.email, "role": "member"}).status_code == 302
    assert project.memberships.filter(user=taken).exists()
    withdraw = f"{page}invitations/{invitation.pk}/withdraw/"
    assert browser_of(member).post(withdraw).status_code == HTTPStatus.NOT_FOUND
    other = make_project(managers=[manager])
    assert browser.post(withdraw.replace(page, f"/projects/{other.pk}/")).status_code == HTTPStatus.NOT_FOUND
    assert browser.post(withdraw).status_code == HTTPStatus.FOUND
    assert not AccountInvitation.objects.exists()


def test_pages_of_projects_take_a_constant_number_of_queries(
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    manager, host = make_user(), make_host()
    project = make_project(managers=[manager])
    for _ in range(4):
        member = make_user()
        Membership.objects.create(project=project, user=member)
        make_project(manager)
        run_session(host=host, owner=member, project=project)
    browser = browser_of(manager)
    for path, most in (("/projects/", 14), (f"/projects/{project.pk}/", 26)):
        with django_assert_max_num_queries(most):
            browser.get(path)
