"""A waiting session's place in the queue, in words on its page and as numbers in the API."""

from datetime import timedelta

import pytest
from django.utils import timezone

from scheduler.advice import estimate
from scheduler.advice.place import QueuePlace, place_of
from scheduler.core.types import QueueOrder
from sessions.lifecycle import Reason, Status
from sessions.models import FairUse, Session
from tests.api import client_of
from tests.factories import make_group, make_host, make_project, make_session, make_user, run_session
from tests.web import browser_of

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def fresh() -> None:
    estimate.state_cache.clear()


def test_the_first_in_line_has_nobody_ahead() -> None:
    host = make_host(cpu=4)
    run_session(host=host, cpu=4)
    first, urgent, other = (make_session(resource_group=host.group, cpu=4, priority=p) for p in (10, 11, 10))
    elsewhere = make_session(resource_group=make_host(cpu=1).group, cpu=4)
    places = [place_of(session) for session in (urgent, first, other, elsewhere)]
    assert [place and place.ahead for place in places] == [0, 1, 2, 0]
    assert place_of(make_session(resource_group=host.group, not_before=timezone.now() + HOUR)) is None
    assert place_of(run_session()) is None


def test_in_fair_order_use_and_fair_share_are_reported() -> None:
    group = make_group(queue_order="fair")
    host = make_host(group=group, cpu=4)
    heavy, light = make_user(), make_user(share_weight=300)
    ran = run_session(host=host, owner=heavy, cpu=4)
    Session.objects.filter(pk=ran.pk).update(started_at=timezone.now() - HOUR)
    ran.refresh_from_db()
    ran.move_to(Status.TERMINATED, Reason.CONTAINER_EXITED)
    run_session(host=host, owner=light, cpu=4)
    waiting = [make_session(resource_group=group, owner=owner, cpu=4) for owner in (heavy, heavy, light)]
    places = [place_of(session) for session in waiting]
    assert places[1] == QueuePlace(ahead=2, own_ahead=1, order=QueueOrder.FAIR, used_percent=100, fair_percent=25)
    assert places[2] == QueuePlace(ahead=0, own_ahead=0, order=QueueOrder.FAIR, used_percent=0, fair_percent=75)
    page = " ".join(browser_of(heavy).get(f"/sessions/{waiting[1].pk}/").content.decode().split())
    assert "2 sessions of its resource group are ahead of it, 1 of them of the same owner." in page
    assert (
        "Next is who has used least for their weight: its owner used 100 % lately, where 25 % is their fair share."
        in page
    )
    answer = client_of(heavy).get(f"/api/v1/sessions/{waiting[1].pk}/place/").json()
    expected = {"ahead": 2, "own_ahead": 1, "order": "fair", "used_percent": 100, "fair_percent": 25}
    assert answer == {**expected, "member_used_percent": None, "member_fair_percent": None}
    assert client_of(light).get(f"/api/v1/sessions/{waiting[1].pk}/place/").status_code == 404
    assert client_of(heavy).get(f"/api/v1/sessions/{ran.pk}/place/").json()["ahead"] is None


def test_members_of_a_project_divide_its_share() -> None:
    group = make_group(queue_order="fair")
    host = make_host(group=group, cpu=4)
    heavy, light, alone = make_user(), make_user(share_weight=300), make_user()
    team = make_project(heavy, light, share_weight=300)
    ran = run_session(host=host, owner=heavy, project=team, cpu=4)
    Session.objects.filter(pk=ran.pk).update(started_at=timezone.now() - HOUR)
    ran.refresh_from_db()
    ran.move_to(Status.TERMINATED, Reason.CONTAINER_EXITED)
    assert FairUse.objects.get().project == team
    run_session(host=host, owner=alone, cpu=4)
    waiting = [make_session(resource_group=group, owner=owner, project=team, cpu=4) for owner in (heavy, light)]
    places = [place_of(session) for session in waiting]
    assert [place and (place.used_percent, place.fair_percent) for place in places] == [(100, 75)] * 2
    members = [place and (place.member_used_percent, place.member_fair_percent) for place in places]
    assert members == [(100, 25), (0, 75)]
    assert [place and place.ahead for place in places] == [1, 0]
    page = " ".join(browser_of(heavy).get(f"/sessions/{waiting[0].pk}/").content.decode().split())
    assert "its project used 100 % lately, where 75 % is its fair share." in page
    assert "Of that, its owner used 100 %, where 25 % is their share among the members." in page
