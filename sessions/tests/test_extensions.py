"""Running sessions are let run longer, as far as their owner's policy and what others were told allow."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from accounts.models import User
from resources.models import ResourceGroup
from sessions.errors import RejectedError
from sessions.extensions import services as extensions
from sessions.extensions.services import allowed, extend, offers
from sessions.lifecycle import Reason, Status
from sessions.models import Session, end_expression
from sessions.sweeps import enforce_deadlines
from tests.api import client_of
from tests.factories import make_group, make_policy, make_session, make_user, run_session

pytestmark = pytest.mark.django_db
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


@pytest.fixture
def owner() -> User:
    return make_user(policy=make_policy(max_lifetime=4 * HOUR, max_extension=2 * HOUR))


@pytest.fixture
def group() -> ResourceGroup:
    return make_group()


def ending_in(left: timedelta, owner: User, group: ResourceGroup) -> Session:
    """Return a running session of a time limit of 2 h that ends after `left`."""
    session = run_session(make_session(owner=owner, resource_group=group, time_limit=2 * HOUR))
    Session.objects.filter(pk=session.pk).update(started_at=timezone.now() + left - 2 * HOUR)
    return Session.objects.select_related("owner__policy").get(pk=session.pk)


def end_by_the_database() -> Any:
    return Session.objects.values_list(end_expression(), flat=True).get()


def test_the_earlier_limit_and_extensions_make_the_end(owner: User, group: ResourceGroup) -> None:
    session = ending_in(HOUR, owner, group)
    assert session.started_at
    assert session.ends_at == session.started_at + 2 * HOUR == end_by_the_database()
    for changes, span in (({"time_limit": None}, 4), ({"extension": HOUR}, 5), ({"time_limit": HOUR}, 2)):
        Session.objects.update(**changes)
        assert Session.objects.get().ends_at == end_by_the_database() == session.started_at + span * HOUR
    owner.policy.max_lifetime = None
    owner.policy.save()
    Session.objects.update(time_limit=None)
    assert Session.objects.get().ends_at is None
    assert end_by_the_database() is None


def test_an_extended_session_runs_on(owner: User, group: ResourceGroup) -> None:
    session = ending_in(-MINUTE, owner, group)
    assert session.may_be_extended
    assert offers(session, owner) == [30 * MINUTE, HOUR, 2 * HOUR]
    extend(session.pk, HOUR, actor=owner)
    enforce_deadlines()
    session = Session.objects.select_related("owner__policy").get()
    assert session.status == Status.RUNNING
    assert session.events.filter(reason=Reason.EXTENDED, actor=owner).exists()
    Session.objects.update(started_at=timezone.now() - 3 * HOUR - MINUTE)
    enforce_deadlines()
    session.refresh_from_db()
    assert (session.status, session.reason) == (Status.TERMINATING, Reason.TIME_LIMIT)


def test_the_policy_bounds_all_extensions_together(owner: User, group: ResourceGroup) -> None:
    session = ending_in(HOUR, owner, group)
    with pytest.raises(RejectedError, match="1 min to 2 h"):
        extend(session.pk, 2 * HOUR + MINUTE, actor=owner)
    extend(session.pk, 90 * MINUTE, actor=owner)
    session = extend(session.pk, 30 * MINUTE, actor=owner)
    assert session.extension == 2 * HOUR
    with pytest.raises(RejectedError, match="Your policy"):
        extend(session.pk, MINUTE, actor=owner)
    admin = make_user(is_superuser=True)
    assert extend(session.pk, 24 * HOUR, actor=admin).extension == 26 * HOUR


@pytest.mark.parametrize("by", [timedelta(0), -HOUR, timedelta(seconds=59)])
def test_an_extension_is_at_least_a_minute(by: timedelta, owner: User, group: ResourceGroup) -> None:
    with pytest.raises(RejectedError):
        extend(ending_in(HOUR, owner, group).pk, by, actor=owner)


def test_what_has_no_end_cannot_be_extended(group: ResourceGroup) -> None:
    unlimited = make_user(policy=make_policy(max_extension=HOUR))
    session = run_session(make_session(owner=unlimited, resource_group=group))
    waiting = make_session(owner=unlimited, resource_group=group, time_limit=HOUR)
    for one, words in ((session, "Nothing limits"), (waiting, "Only a running")):
        assert not one.may_be_extended
        assert offers(one, unlimited) == []
        with pytest.raises(RejectedError, match=words):
            extend(one.pk, HOUR, actor=unlimited)


def test_a_start_that_was_promised_holds(owner: User, group: ResourceGroup) -> None:
    session = ending_in(HOUR, owner, group)
    assert session.ends_at
    waiting = make_session(resource_group=group, reason=Reason.NO_CAPACITY.value, eta=session.ends_at + 20 * MINUTE)
    assert allowed(session, owner) == 19 * MINUTE  # and one to stop it
    assert offers(session, owner) == [19 * MINUTE]
    Session.objects.filter(pk=waiting.pk).update(eta=session.ends_at)
    with pytest.raises(RejectedError, match="Another session waits"):
        extend(session.pk, MINUTE, actor=owner)
    assert allowed(session, make_user(is_superuser=True)) == extensions.MAX_BY_SUPERADMIN
    assert session.started_at
    session.extension = 119 * MINUTE  # the policy has a minute
    session.started_at -= 119 * MINUTE
    assert allowed(session, owner) < MINUTE
    session.refresh_from_db()
    Session.objects.filter(pk=waiting.pk).update(eta=session.ends_at - MINUTE)  # rests on another's end
    assert allowed(session, owner) == 2 * HOUR
    Session.objects.filter(pk=waiting.pk).update(eta=session.ends_at, resource_group=make_group())
    assert allowed(session, owner) == 2 * HOUR


def test_the_api_extends_and_says_why_not(owner: User, group: ResourceGroup) -> None:
    session = ending_in(HOUR, owner, group)
    address = f"/api/v1/sessions/{session.pk}/extend/"
    refused = client_of(owner).post(address, {"by": "3h"})
    assert (refused.status_code, list(refused.json()["errors"])) == (400, ["by"])
    assert client_of(make_user()).post(address, {"by": "1h"}).status_code == 404
    before = session.ends_at
    assert before
    answer = client_of(owner).post(address, {"by": "1h"}).json()
    assert answer["ends_at"] == (before + HOUR).isoformat().replace("+00:00", "Z")
