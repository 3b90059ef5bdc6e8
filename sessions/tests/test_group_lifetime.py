"""A resource group bounds how long sessions run in it, beside the policies; the scheduler plans by it."""

from datetime import timedelta

import pytest
from django.utils import timezone

from resources.hosts import bounds
from resources.models import ResourceGroup
from scheduler.advice.estimate import requests_of
from sessions.lifecycle import Reason, Status
from sessions.models import Session, end_expression, time_bound
from sessions.sweeps import enforce_deadlines
from sessions.tests.launch_requests import make_launch_request, rejection
from tests.factories import make_group, make_host, make_policy, make_session, make_user, run_session

pytestmark = pytest.mark.django_db
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


@pytest.fixture
def group() -> ResourceGroup:
    return make_group(max_lifetime=2 * HOUR)


def bound_of(session: Session) -> timedelta | None:
    found: timedelta | None = Session.objects.filter(pk=session.pk).values_list(time_bound(), flat=True).get()
    return found


@pytest.mark.parametrize(("policy", "hours"), [(None, 2), (HOUR, 1), (3 * HOUR, 2)])
def test_the_strictest_limit_ends_a_session(group: ResourceGroup, policy: timedelta | None, hours: int) -> None:
    session = run_session(make_session(owner=make_user(policy=make_policy(max_lifetime=policy)), resource_group=group))
    assert session.started_at
    assert session.ends_at == session.started_at + hours * HOUR
    assert Session.objects.values_list(end_expression(), flat=True).get() == session.ends_at
    Session.objects.update(started_at=timezone.now() - hours * HOUR - MINUTE, start_by=None)
    enforce_deadlines()
    session.refresh_from_db()
    assert (session.status, session.reason) == (Status.TERMINATING, Reason.LIFETIME)
    assert ("resource group" in session.detail) == (hours == 2)


def test_waiting_session_of_one_group_is_planned_by_it(group: ResourceGroup) -> None:
    session = make_session(resource_group=group)
    assert bound_of(session) == 2 * HOUR
    Session.objects.update(group_choices=[group.pk, make_group().pk])
    assert bound_of(session) is None
    host = make_host(group=group)
    order = make_launch_request(host)
    assert [request.duration for request in requests_of(make_user(), order, timezone.now())] == [2 * HOUR]


def test_a_longer_time_limit_is_refused_at_its_field(group: ResourceGroup) -> None:
    host = make_host(group=group)
    errors = rejection(make_user(), make_launch_request(host, time_limit=3 * HOUR))
    assert errors == {"time_limit": f"The resource group {group} ends sessions after 2 h."}


def test_starts_are_promised_behind_unlimited_policies(group: ResourceGroup) -> None:
    make_user()
    assert bounds.of_group(group) == ""
    assert bounds.of_group(make_group())
