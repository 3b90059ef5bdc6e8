"""A user's page for superadmins: what runs and waits, the limits with their sources, and that looking is recorded."""

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import AuditEntry, User
from pages.overview.limits_in_force import LimitCell, limits_of, sources_of
from resources.amounts.units import GIB
from sessions.lifecycle import Reason
from sessions.models import Session
from tests.factories import make_policy, make_project, make_session, make_user, run_session
from tests.web import browser_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin() -> User:
    return make_user(is_superuser=True)


def cells(user: User) -> dict[str, list[LimitCell]]:
    return {row.name: [cell for _, cell in row.cells] for row in limits_of(sources_of(user))}


def test_a_user_is_shown_with_sessions_and_reasons(admin: User) -> None:
    running = run_session(name="trains")
    waiting = make_session(owner=running.owner, name="waits")
    Session.objects.filter(pk=waiting.pk).update(reason=Reason.USER_LIMIT)
    make_session(name="of-another")
    make_project(running.owner, name="vision")
    page = browser_of(admin).get(f"/users/{running.owner_id}/").content.decode()
    for text in (
        "trains",
        "waits",
        "Waiting: your policy allows no more at once",
        "vision",
        f"/sessions/{running.pk}/",
    ):
        assert text in page
    assert "of-another" not in page


def test_limits_say_what_is_used_and_which_are_reached() -> None:
    policy = make_policy(cpu=2, memory=8 * GIB, fgpu=None, allow_sudo=True)
    user = make_user(policy=policy)
    run_session(owner=user, cpu=2, memory=2 * GIB, fgpu=500)
    found = cells(user)
    assert found["cpu"] == [LimitCell(text="2 of 2", is_reached=True)]
    assert found["memory"] == [LimitCell(text="2 GiB of 8 GiB")]
    assert found["fgpu"] == [LimitCell(text="0.5, no limit")]
    assert found["allow_sudo"] == [LimitCell(text="yes")]
    assert found["max_parked_time"] == [LimitCell(text="14 d")]


def test_limits_of_projects_and_overrides_stand_beside() -> None:
    user = make_user(policy=make_policy(cpu=8, share_weight=100), share_weight=300)
    project = make_project(user, make_user(), name="vision", policy=make_policy(cpu=4), share_weight=200)
    make_project(user, name="without-a-policy")
    run_session(owner=user, project=project, cpu=1)
    found = cells(user)
    assert [cell.text for cell in found["cpu"]] == ["1 of 8", "1 of 4"]
    assert [cell.note for cell in found["share_weight"]] == ["set for this user", "set for the project"]
    assert [cell.text for cell in found["share_weight"]] == ["300", "200"]
    assert found["max_private_images"][1].text == "-"


def test_looking_at_a_user_is_in_the_audit_log(admin: User) -> None:
    user = make_user()
    browser_of(admin).get(f"/users/{user.pk}/")
    browser_of(admin).get(f"/users/{admin.pk}/")
    (entry,) = AuditEntry.objects.all()
    assert (entry.actor, entry.action, entry.object_id) == (admin, "looked at", str(user.pk))


def test_nobody_else_sees_the_page_of_a_user() -> None:
    user = make_user()
    assert Client().get(f"/users/{user.pk}/").status_code == 302
    for other in (user, make_user(is_staff=True)):
        assert browser_of(other).get(f"/users/{user.pk}/").status_code == 404
    assert not AuditEntry.objects.exists()


def test_the_page_takes_as_many_queries_for_many_rows(admin: User) -> None:
    user, client, counts = make_user(), browser_of(admin), []
    for _ in range(2):
        for _ in range(3):
            run_session(owner=user)
            make_project(user, policy=make_policy())
        with CaptureQueriesContext(connection) as queries:
            client.get(f"/users/{user.pk}/")
        counts.append(len(queries))
    assert counts[0] == counts[1]
