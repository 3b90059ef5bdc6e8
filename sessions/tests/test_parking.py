"""Parking as owners, rules and deadlines do it: what is refused, what is freed, and every way out."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from accounts.models import Project
from resources.amounts.units import GIB
from resources.models import Host, HostStatus
from scheduler.cycle.passes import run_pass
from sessions.errors import RejectedError
from sessions.launching import services
from sessions.lifecycle import Reason, Status
from sessions.models import Conversion, Endpoint, FairUse, Lease, Session
from sessions.parking import services as parking
from sessions.sweeps import end_long_parked, enforce_deadlines
from tests.factories import (
    lease_session,
    make_group,
    make_host,
    make_policy,
    make_project,
    make_session,
    make_user,
    parked_session,
    run_session,
    session_in,
)
from tests.wait import until

pytestmark = pytest.mark.django_db


def test_parking_is_refused_with_its_reason() -> None:
    owner = make_user(policy=make_policy(max_parked=1))
    batch = run_session(owner=owner, kind="batch", command="true")
    waiting = make_session(owner=owner)
    parked_session(owner=owner)
    one_more = run_session(owner=owner)
    for session, words in ((batch, "batch"), (waiting, "Only a running"), (one_more, "1 parked")):
        with pytest.raises(RejectedError) as refused:
            parking.park(session, actor=owner)
        assert words in str(refused.value.errors)
        assert Session.objects.get(pk=session.pk).is_parking is False
    nobody = run_session(owner=make_user(policy=make_policy(max_parked=0)))
    with pytest.raises(RejectedError, match="allows no parked"):
        parking.park(nobody, actor=nobody.owner)


def test_parked_session_frees_its_lease_for_another() -> None:
    group = make_group(fgpu_per_gpu=1)
    host = make_host(group=group, gpus=1)
    session = run_session(host=host, fgpu=1000)
    other = make_session(resource_group=group, fgpu=1000)
    run_pass()
    parking.park(session, actor=session.owner)
    assert (session.status, Lease.objects.count()) == (Status.TERMINATING, 1)  # held until its container has stopped
    parking.park(session, actor=session.owner)  # again: nothing
    session.move_to(Status.PARKED, Reason.PARKED)
    assert FairUse.objects.get(user=session.owner).fgpu_milli_seconds >= 0
    run_pass()
    other.refresh_from_db()
    assert other.status == Status.SCHEDULED


def test_resumed_session_waits_for_its_own_host() -> None:
    group = make_group(fgpu_per_gpu=1)
    home, elsewhere = make_host(group=group, gpus=1), make_host(group=group, gpus=1)
    session = parked_session(host=home, fgpu=1000)
    blocker = run_session(host=home, fgpu=1000)
    first = make_session(resource_group=group, cpu=16, memory=64 * GIB)  # has been waiting for longer, and may go first
    endpoint = Endpoint.objects.create(session=session, app="jupyter", title="Jupyter", port=8888, state="READY")
    run_pass()
    parking.resume(session, actor=session.owner)
    run_pass()
    session.refresh_from_db()
    assert (session.status, session.reason) == (Status.PENDING, Reason.NO_CAPACITY)
    assert home.name in session.detail
    assert first.created_at < (session.not_before or first.created_at)
    endpoint.refresh_from_db()
    assert endpoint.state == "STARTING"
    blocker.move_to(Status.ERROR, Reason.CONTAINER_EXITED)
    run_pass()
    session.refresh_from_db()
    assert (session.status, session.host, session.attempt) == (Status.SCHEDULED, home, 2)
    assert elsewhere.pk != home.pk


def test_resume_waits_where_its_host_takes_no_sessions() -> None:
    session = parked_session()
    make_host(group=session.resource_group)
    host = Host.objects.get(parked_sessions=session)
    Host.objects.filter(pk=host.pk).update(is_cordoned=True)
    parking.resume(session, actor=session.owner)
    run_pass()
    session.refresh_from_db()
    assert (session.status, session.reason) == (Status.PENDING, Reason.NO_SUITABLE_HOST)
    assert "the files of this parked session" in session.detail
    parking.park(session, actor=session.owner)  # put back
    assert (session.status, session.host_id) == (Status.PARKED, session.parked_on_id)
    Host.objects.filter(pk=host.pk).update(status=HostStatus.LOST)
    session.refresh_from_db()
    with pytest.raises(RejectedError, match="unreachable"):
        parking.resume(session, actor=session.owner)


def test_session_being_parked_may_be_ended_instead() -> None:
    session = run_session()
    parking.park(session, actor=session.owner)
    services.terminate(session, actor=session.owner)
    assert (session.status, session.is_parking, session.reason) == (Status.TERMINATING, False, Reason.USER_REQUEST)
    services.terminate(session, actor=session.owner)
    assert session.events.filter(reason=Reason.USER_REQUEST).count() == 1


def test_parked_sessions_end_by_their_owner_or_deadline() -> None:
    owner = make_user(policy=make_policy(max_parked_time=timedelta(days=1)))
    ended, overdue, recent = (parked_session(owner=owner) for _ in range(3))
    services.terminate(ended, actor=owner)
    Session.objects.filter(pk=overdue.pk).update(status_at=timezone.now() - timedelta(days=2))
    enforce_deadlines()
    found = {row.pk: (row.status, row.reason) for row in Session.objects.all()}
    assert found == {
        ended.pk: (Status.TERMINATED, Reason.USER_REQUEST),
        overdue.pk: (Status.TERMINATED, Reason.PARK_TIMEOUT),
        recent.pk: (Status.PARKED, Reason.PARKED),
    }


def test_a_look_at_parked_sessions_takes_one_query(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    parked_session()
    with django_assert_num_queries(1):
        end_long_parked()  # with two, one that comes due between them would end for another reason than it does


def test_lost_host_and_pending_timeout_leave_sessions_parked() -> None:
    session = run_session()
    parking.park(session, actor=session.owner)
    long_ago = timezone.now() - timedelta(days=1)
    Host.objects.filter(sessions=session).update(status=HostStatus.LOST, lost_at=long_ago, heartbeat_at=long_ago)
    waiting = parked_session(resource_group=make_group(pending_timeout=timedelta(minutes=5)))
    parking.resume(waiting, actor=waiting.owner)
    enforce_deadlines()
    waiting.refresh_from_db()
    assert waiting.status == Status.PENDING  # it counts from when it was resumed
    Session.objects.filter(pk=waiting.pk).update(status_at=long_ago, not_before=long_ago)
    enforce_deadlines()
    for one in (session, waiting):
        one.refresh_from_db()
        assert (one.status, one.host_id) == (Status.PARKED, one.parked_on_id)


def test_resume_is_bound_by_the_policy_of_today() -> None:
    session = parked_session(cpu=4)
    session.owner.policy.cpu = 2
    session.owner.policy.save()
    with pytest.raises(RejectedError, match="less by now"):
        parking.resume(session, actor=session.owner)
    session.owner.policy.cpu, session.owner.policy.max_pending = None, 0
    session.owner.policy.save()
    with pytest.raises(RejectedError, match="waiting sessions"):
        parking.resume(session, actor=session.owner)
    running = session_in(Status.RUNNING)
    with pytest.raises(RejectedError, match="Only a parked"):
        parking.resume(running, actor=running.owner)


@pytest.mark.django_db(transaction=True)
def test_resume_counts_what_other_members_submit_meanwhile() -> None:
    owner, other = make_user(), make_user()
    project = make_project(owner, other, policy=make_policy(max_pending=1))
    session = parked_session(owner=owner, project=project)

    def resume() -> None:
        try:
            parking.resume(session, actor=owner)
        finally:
            connection.close()

    def is_any_waiting() -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
            return bool(cursor.fetchone()[0])

    with ThreadPoolExecutor(1) as threads, transaction.atomic():
        Project.objects.select_for_update(no_key=True).get(pk=project.pk)  # as `submit` does
        resuming = threads.submit(resume)
        until(lambda: resuming.done() or is_any_waiting())
        make_session(owner=other, project=project)
    with pytest.raises(RejectedError, match="1 wait already"):
        resuming.result()


def test_parked_for_as_long_as_the_strictest_policy_allows() -> None:
    day = timedelta(days=1)
    owner = make_user(policy=make_policy(max_parked_time=3 * day))
    bounded = parked_session(owner=owner, project=make_project(owner, policy=make_policy(max_parked_time=day)))
    endless = parked_session(owner=make_user(policy=make_policy(max_parked_time=None)))
    running = run_session(owner=owner)
    assert [parking.longest(session) for session in (bounded, endless)] == [day, None]
    assert parking.retained_until(bounded) == bounded.status_at + day
    assert [parking.retained_until(session) for session in (endless, running)] == [None, None]


def test_one_that_moves_on_meanwhile_is_not_parked(monkeypatch: pytest.MonkeyPatch) -> None:
    session = run_session()

    def end_first(session: Session) -> str:
        services.terminate(Session.objects.get(pk=session.pk), actor=session.owner)
        return ""

    monkeypatch.setattr(parking, "refusal", end_first)
    with pytest.raises(RejectedError, match="has just changed"):
        parking.park(session, actor=session.owner)


def test_what_cannot_be_parked_is_not_offered() -> None:
    offered = {
        status: parking.is_offered(session_in(status))
        for status in (Status.PENDING, Status.SCHEDULED, Status.RUNNING, Status.TERMINATING)
    }
    assert [status for status, is_so in offered.items() if is_so] == [Status.RUNNING]
    assert not parking.is_offered(session_in(Status.RUNNING, kind="batch", command="train"))
    waiting = parked_session()
    parking.resume(waiting)
    assert parking.is_offered(waiting)


def test_parking_waits_for_what_else_is_under_way() -> None:
    session = run_session()
    Conversion.objects.create(session=session, host=session.host, state="SAVING", reference="mine:1")
    assert "being saved as an image" in parking.refusal(session)
    Session.objects.update(resize={})
    assert "being resized" in parking.refusal(session)


def test_a_session_is_parked_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    session = parked_session()
    parking.resume(session)
    lease_session(session, session.parked_on)
    run_session_again(session)
    assert parking.refusal(session) == ""
    monkeypatch.setattr(parking, "MAX_PARKS", 1)
    assert "was parked 1 times" in parking.refusal(session)


def run_session_again(session: Session) -> None:
    session.refresh_from_db()
    session.move_to(Status.PREPARING, Reason.CLAIMED)
    session.move_to(Status.RUNNING, Reason.STARTED)


def test_a_long_cause_is_cut_to_what_the_row_holds() -> None:
    session = parked_session()
    parking.resume(session)
    parking.return_parked(session, Reason.RESUME_FAILED, "x" * 301)
    assert (session.status, session.detail) == (Status.PARKED, "x" * 300)
