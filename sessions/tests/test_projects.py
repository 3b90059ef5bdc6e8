"""Sessions of projects: whose limits bind them, where they may start, and who sees, ends and enters them."""

from datetime import timedelta
from http import HTTPStatus

import pytest

from accounts.models import Membership, Project
from resources.amounts.units import GIB
from resources.models import Host
from scheduler.cycle.passes import run_pass
from sessions import sweeps
from sessions.errors import GENERAL
from sessions.launching import services
from sessions.lifecycle import Reason, Status
from sessions.limits import held as usage
from sessions.models import Session
from sessions.tests.launch_requests import make_launch_request, rejection
from tests.api import client_of
from tests.factories import make_group, make_host, make_policy, make_project, make_session, make_user, run_session
from tests.web import browser_of, text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def host() -> Host:
    """A host of 16 cores, 64 GiB and 2 GPUs of 2 fGPU."""
    return make_host(gpus=2)


def test_each_limit_of_the_project_is_refused_at_its_field(host: Host) -> None:
    owner = make_user(policy=make_policy(cpu=8, max_priority=50))
    policy = make_policy(
        **{"cpu": 2, "memory": 2 * GIB, "fgpu": 500, "max_pending": 1, "max_per_launch": 2, "max_priority": 20},
        max_lifetime=timedelta(hours=1),
    )
    project = make_project(owner, name="vision", policy=policy)
    beyond = {
        "cpu": (3, "The project vision allows at most 2 CPU cores."),
        "memory": (3 * GIB, "The project vision allows at most 2 GiB of memory."),
        "fgpu": (510, "The project vision allows at most 0.5 fGPU."),
        "count": (3, "The project vision allows at most 2 sessions per launch."),
        "priority": (21, "Your policies allow a priority of at most 20."),
        "time_limit": (timedelta(hours=2), "The project vision ends sessions after 1 h."),
    }
    asked = {name: value for name, (value, _) in beyond.items()}
    refused = rejection(owner, make_launch_request(host, project=project, **asked))
    assert refused == {name: message for name, (_, message) in beyond.items()}
    two = make_launch_request(host, project=project, count=2)
    assert rejection(owner, two) == {
        "count": "The project vision allows 1 waiting sessions, and 0 wait already: 2 more are too many."
    }
    (session,) = services.submit(owner, make_launch_request(host, project=project, priority=20))
    assert (session.project, session.priority) == (project, 20)
    project.is_active = False
    project.save()
    assert "project" in rejection(owner, make_launch_request(host, project=project))


def test_only_members_start_sessions_for_a_project(host: Host) -> None:
    project, stranger = make_project(name="vision"), make_user(is_superuser=True)
    assert rejection(stranger, make_launch_request(host, project=project)) == {
        "project": "You are not a member of the project vision, or it is not active any more."
    }
    answer = client_of(stranger).post(
        "/api/v1/sessions/", {"image": "no/image", "project": "vision", "cpu": 1, "memory": "1g"}, format="json"
    )
    assert answer.json()["errors"]["project"] == ["You are not a member of an active project 'vision'."]


def test_a_group_granted_to_a_project_takes_its_sessions_alone() -> None:
    owner = make_user()
    group, project = make_group(open_to_all=False, name="a100"), make_project(owner, name="vision")
    host = make_host(group=group)
    assert rejection(owner, make_launch_request(host)) == {"resource_group": "You may not use this resource group."}
    project.resource_groups.add(group)
    assert rejection(owner, make_launch_request(host)) == {
        "resource_group": "a100 is granted to your project vision: start the session for it."
    }
    assert rejection(owner, make_launch_request(host, project=make_project(owner)))
    assert not rejection(owner, make_launch_request(host, project=project))


def test_a_group_takes_the_kinds_of_sessions_that_it_allows(host: Host) -> None:
    group, owner = host.group, make_user()
    group.allow_batch = False
    group.save()
    refused = rejection(owner, make_launch_request(host, command="true"))
    assert refused == {"command": f"The resource group {group} takes no sessions that run a command."}
    group.allow_batch, group.allow_interactive = True, False
    group.save()
    assert "takes only sessions that run a command" in rejection(owner, make_launch_request(host))["command"]
    assert not rejection(owner, make_launch_request(host, command="true"))


def test_members_share_the_limits_of_their_project(host: Host) -> None:
    one, two = make_user(), make_user(policy=make_policy(fgpu=700))
    project = make_project(one, two, policy=make_policy(fgpu=1000))
    first = make_session(owner=one, project=project, fgpu=600, resource_group=host.group)
    second = make_session(owner=two, project=project, fgpu=600, resource_group=host.group)
    run_pass()
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.status, second.status, second.reason) == (Status.SCHEDULED, Status.PENDING, Reason.PROJECT_LIMIT)
    assert second.detail.startswith("Your project allows 1 fGPU at once")
    assert (usage.left_for(two).fgpu, usage.left_for(two, project).fgpu) == (700, 400)
    project.policy.fgpu = 1200  # type: ignore[union-attr]  # it has one
    project.policy.save()  # type: ignore[union-attr]
    run_pass()
    second.refresh_from_db()
    assert second.status == Status.SCHEDULED


def test_lowered_limit_holds_for_the_queue_and_ends_nobody(host: Host) -> None:
    owner = make_user()
    project = make_project(owner, policy=make_policy(max_sessions=2))
    running = run_session(host=host, owner=owner, project=project)
    Project.objects.update(is_active=False)
    waiting = make_session(owner=owner, project=project, resource_group=host.group)
    assert run_pass() == 0
    waiting.refresh_from_db()
    running.refresh_from_db()
    assert (waiting.reason, waiting.detail) == (Reason.PROJECT_LIMIT, "Your project allows no running sessions.")
    assert running.status == Status.RUNNING
    Project.objects.update(is_active=True)
    assert run_pass() == 1


def test_the_strictest_lifetime_ends_a_session(host: Host) -> None:
    policy = make_policy(max_lifetime=timedelta(hours=1), max_extension=timedelta(hours=2))
    owner = make_user(policy=make_policy(max_lifetime=timedelta(days=1), max_extension=timedelta(hours=1)))
    session = run_session(host=host, owner=owner, project=make_project(owner, policy=policy))
    assert session.started_at is not None
    assert session.ends_at == session.started_at + timedelta(hours=1)
    assert session.extension_left == timedelta(hours=1)
    Session.objects.update(started_at=session.started_at - timedelta(hours=1))
    sweeps.enforce_deadlines()
    session.refresh_from_db()
    assert (session.status, session.detail) == (
        Status.TERMINATING,
        "It reached the maximum lifetime of its project's policy.",
    )


def test_waiting_sessions_of_former_members_are_cancelled(host: Host) -> None:
    owner = make_user()
    project = make_project(owner, name="vision")
    waiting = make_session(owner=owner, project=project, resource_group=host.group)
    running = run_session(host=host, owner=owner, project=project)
    sweeps.enforce_deadlines()
    waiting.refresh_from_db()
    assert waiting.status == Status.PENDING
    Membership.objects.all().delete()
    sweeps.enforce_deadlines()
    waiting.refresh_from_db()
    running.refresh_from_db()
    assert (waiting.status, running.status) == (Status.CANCELLED, Status.RUNNING)
    assert waiting.detail == "Its owner is no longer a member of the project vision."


def test_managers_see_and_end_sessions_but_enter_none(host: Host) -> None:
    owner, manager = make_user(), make_user()
    project = make_project(owner, managers=[manager], name="vision")
    secret = {"TOKEN": "hidden-value"}
    session = run_session(host=host, owner=owner, project=project, environment=secret)
    private = run_session(host=host, owner=owner)
    assert list(Session.objects.visible_to(manager)) == [session]
    assert not Session.objects.operable_by(manager)
    browser, api = browser_of(manager), client_of(manager)
    page = text_of(browser, f"/sessions/{session.pk}/")
    assert owner.email in page
    assert "vision" in page
    assert not [hidden for hidden in ("hidden-value", "Rename", "open-terminal", "Launch again") if hidden in page]
    for part in ("logs/", "logs/download/", "rename/", "extend/", "convert/", "terminal/"):
        assert browser.get(f"/sessions/{session.pk}/{part}").status_code == HTTPStatus.NOT_FOUND, part
    assert browser.get(f"/sessions/{private.pk}/").status_code == HTTPStatus.NOT_FOUND
    seen = api.get("/api/v1/sessions/", {"project": "vision"}).json()["results"]
    assert [(each["id"], each["project"], each["env"]) for each in seen] == [(session.pk, "vision", None)]
    assert api.get(f"/api/v1/sessions/{session.pk}/logs/").status_code == HTTPStatus.NOT_FOUND
    assert api.post(f"/api/v1/sessions/{private.pk}/terminate/").status_code == HTTPStatus.NOT_FOUND
    assert api.post(f"/api/v1/sessions/{session.pk}/terminate/").status_code == HTTPStatus.OK
    session.refresh_from_db()
    assert (session.reason, session.detail) == (Reason.ADMIN_REQUEST, f"Ended by {manager}.")


def test_a_policy_that_allows_no_sessions_says_so(host: Host) -> None:
    owner = make_user()
    project = make_project(owner, name="vision", policy=make_policy(max_sessions=0))
    assert rejection(owner, make_launch_request(host, project=project)) == {
        GENERAL: "The project vision allows no sessions."
    }


def test_the_strictest_bounds_of_both_policies_bind_a_session() -> None:
    owner = make_user(policy=make_policy(disk_bytes=3 * GIB, allow_sudo=True))
    project = make_project(owner, policy=make_policy(disk_bytes=GIB, allow_sudo=True))
    alone, shared = make_session(owner=owner), make_session(owner=owner, project=project)
    assert (alone.bounds.disk_bytes, shared.bounds.disk_bytes) == (3 * GIB, GIB)
