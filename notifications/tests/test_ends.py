"""Owners are told 10 minutes and 1 minute before a session ends, once, in its terminals too."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from accounts.models import ResourcePolicy, User
from notifications.delivery.ends import announce_ends, announce_idle_ends, announce_parked_ends
from notifications.delivery.texts import text_of
from notifications.models import Notification
from sessions.extensions import services as extensions
from sessions.idle_rules import IdleAction
from sessions.models import IdleNotice, IdleRule, Session
from tests.factories import make_policy, make_session, make_user, parked_session, run_session
from tests.queues import take_all

pytestmark = pytest.mark.django_db
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


@pytest.fixture
def owner() -> User:
    return make_user(policy=make_policy(max_lifetime=HOUR, max_extension=HOUR))


@pytest.fixture
def session(owner: User) -> Session:
    return run_session(make_session(owner=owner))


def end_in(session: Session, left: timedelta) -> None:
    Session.objects.filter(pk=session.pk).update(started_at=timezone.now() + left - HOUR)


def test_each_warning_is_given_once(session: Session, django_capture_on_commit_callbacks: Any) -> None:
    assert session.host
    queue = f"host.{session.host.name}"
    end_in(session, 11 * MINUTE)
    assert announce_ends() == 0
    for left, words in ((9.6 * MINUTE, "ends in 10 minutes"), (0.9 * MINUTE, "ends in 1 minute")):
        end_in(session, left)
        with django_capture_on_commit_callbacks(execute=True):
            assert announce_ends() == 1
            assert announce_ends() == 0
        told = Notification.objects.first()
        assert told
        assert text_of(told).title == f"{session.name} {words}"
        ((task, arguments),) = take_all(queue)
        assert task == "hostworker.tasks.show_message"
        assert list(arguments[:3]) == [session.pk, session.attempt, f"{session.name} {words}"]
    end_in(session, -MINUTE)
    assert announce_ends() == 0


def test_a_late_look_gives_the_last_warning_alone(session: Session) -> None:
    end_in(session, 0.5 * MINUTE)
    assert announce_ends() == 1
    assert announce_ends() == 0


def test_an_extended_session_is_warned_of_anew(session: Session, owner: User) -> None:
    end_in(session, 5 * MINUTE)
    assert announce_ends() == 1
    extensions.extend(session.pk, HOUR, actor=owner)
    assert announce_ends() == 0
    end_in(session, 6 * MINUTE - HOUR)
    assert announce_ends() == 1


def test_a_short_life_is_not_warned_of(owner: User) -> None:
    run_session(make_session(owner=owner, time_limit=5 * MINUTE))
    assert announce_ends() == 0


@pytest.mark.parametrize("count", [1, 5])
def test_a_look_takes_two_queries(count: int, owner: User, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    for _ in range(count):
        end_in(run_session(make_session(owner=owner)), 5 * MINUTE)
    assert announce_ends() == count
    with django_assert_num_queries(2):
        assert announce_ends() == 0


def test_one_that_ends_for_another_is_notified_why_at_once(django_capture_on_commit_callbacks: Any) -> None:
    session = run_session(is_preemptible=True)
    Session.objects.filter(pk=session.pk).update(preempt_by=timezone.now() + 2.1 * MINUTE)
    with django_capture_on_commit_callbacks(execute=True):
        assert announce_ends() == 1
        assert announce_ends() == 0
    told = text_of(Notification.objects.get(kind="ENDING"))
    assert told.title == f"{session.name} ends in 2 minutes"
    assert "as it is preemptible and another session needs what it holds" in told.body
    assert session.host
    ((_, arguments),) = take_all(f"host.{session.host.name}")
    assert arguments[2] == f"{session.name} ends in 2 minutes: another session needs what it holds"
    Session.objects.filter(pk=session.pk).update(preempt_by=timezone.now() + 0.5 * MINUTE)
    assert announce_ends() == 1


@pytest.mark.parametrize(("action", "words"), [(IdleAction.END, "ends"), (IdleAction.PARK, "is parked")])
def test_idle_sessions_are_announced_ten_and_one_minutes_before(
    session: Session, action: IdleAction, words: str, django_capture_on_commit_callbacks: Any
) -> None:
    assert session.host
    rule = IdleRule.objects.create(name="Quiet", idle_timeout=HOUR, action=action.value)
    notice = IdleNotice.objects.create(
        session=session, rule=rule, cause="Nobody used it for 1 h, and it computed nothing.", ends_at=timezone.now()
    )
    for left, minutes in ((11, ""), (9.6, "10 minutes"), (0.9, "1 minute"), (-1, "")):
        end = timezone.now() + left * MINUTE
        IdleNotice.objects.filter(pk=notice.pk).update(ends_at=end, warned_at=end - HOUR)
        with django_capture_on_commit_callbacks(execute=True):
            assert [announce_idle_ends(), announce_idle_ends()] == [bool(minutes), 0]
        if minutes:
            text = text_of(Notification.objects.order_by("-pk")[0])
            assert text.title == f"{session.name} is idle and {words} in {minutes}"
            assert text.body.startswith("Nobody used it for 1 h")
            ((_, arguments),) = take_all(f"host.{session.host.name}")
            assert arguments[2] == text.title
    IdleNotice.objects.update(ends_at=timezone.now() + 8 * MINUTE, warned_at=timezone.now())
    assert announce_idle_ends() == 0  # its owner was told just now


def test_owner_is_notified_a_day_before_parked_files_go(owner: User) -> None:
    ResourcePolicy.objects.filter(users=owner).update(max_parked_time=timedelta(days=14))
    session = parked_session(owner=owner)
    assert announce_parked_ends() == 0
    Session.objects.filter(pk=session.pk).update(status_at=timezone.now() - timedelta(days=13, hours=1))
    assert [announce_parked_ends(), announce_parked_ends()] == [1, 0]
    text = text_of(Notification.objects.get(kind="PARK_ENDING"))
    assert text.title == f"{session.name} is parked and about to end"
    assert "Its files are kept until" in text.body
    Session.objects.filter(pk=session.pk).update(status_at=timezone.now() - timedelta(days=15))
    assert announce_parked_ends() == 0
