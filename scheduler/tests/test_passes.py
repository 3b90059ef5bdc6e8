"""Scheduling passes on the database, and how they are requested."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, transaction
from pytest_django import DjangoCaptureOnCommitCallbacks

from resources import kick
from resources.gpus.tiers import Tier
from resources.models import Host, HostStatus, ResourceGroup
from scheduler import tasks
from scheduler.cycle import passes
from scheduler.state import explanations
from sessions.launching import services
from sessions.lifecycle import Reason, Status
from sessions.limits import locks as capacity_locks
from sessions.models import GpuShare, Lease, Session, WaitStatus, write_wait_statuses
from sessions.tests.launch_requests import make_launch_request
from tests.factories import make_host, make_policy, make_session, make_user, run_session
from tests.queues import take_all
from tests.wait import SECONDS, until

KICK = ("scheduler.tasks.run_pass", ())


def held_on_gpus() -> int:
    return sum(GpuShare.objects.values_list("milli", flat=True))


@pytest.mark.django_db
def test_the_third_session_waits_until_a_share_is_free() -> None:
    owner, host = make_user(), make_host(gpus=1)
    sessions = services.submit(owner, make_launch_request(host, fgpu=1000, count=3))
    assert passes.run_pass() == 2
    assert held_on_gpus() == 2000
    states = [Session.objects.get(pk=session.pk) for session in sessions]
    assert [state.status for state in states] == [Status.SCHEDULED, Status.SCHEDULED, Status.PENDING]
    assert states[2].reason == Reason.NO_CAPACITY
    assert "1 fGPU" in states[2].detail
    assert passes.run_pass() == 0
    services.terminate(states[0], actor=owner)
    assert held_on_gpus() == 1000
    assert passes.run_pass() == 1
    assert Session.objects.get(pk=sessions[2].pk).status == Status.SCHEDULED
    assert held_on_gpus() == 2000


@pytest.mark.django_db
def test_each_waiting_session_has_its_own_reason() -> None:
    limited = make_user(policy=make_policy(max_sessions=1))
    host = make_host(cpu=4)
    run_session(owner=limited, host=host)
    over_limit = make_session(owner=limited, resource_group=host.group)
    too_large = make_session(resource_group=host.group, cpu=4)
    no_host = make_session(resource_group=make_host(status=HostStatus.LOST).group)
    inactive = make_session(resource_group=make_host().group)
    ResourceGroup.objects.filter(pk=inactive.resource_group_id).update(is_active=False)
    assert passes.run_pass() == 0
    reasons = dict(Session.objects.filter(status=Status.PENDING).values_list("pk", "reason"))
    assert reasons == {
        over_limit.pk: Reason.USER_LIMIT,
        too_large.pk: Reason.NO_CAPACITY,
        no_host.pk: Reason.NO_HOST,
        inactive.pk: Reason.NO_HOST,
    }
    assert all(Session.objects.values_list("detail", flat=True).filter(status=Status.PENDING))


@pytest.mark.django_db
def test_reasons_are_written_only_when_they_change(
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    host = make_host(gpus=1)
    running = run_session(host=host, fgpu=2000)
    waiting = make_session(resource_group=host.group, fgpu=1000)

    def version() -> str:
        with connection.cursor() as cursor:
            cursor.execute("SELECT ctid::text FROM compute_session WHERE id = %s", [waiting.pk])
            return str(cursor.fetchone()[0])

    with django_capture_on_commit_callbacks() as first:
        passes.run_pass()
    as_stored = version()
    with django_capture_on_commit_callbacks() as second:
        passes.run_pass()
    assert (len(first), len(second)) == (1, 0)
    assert version() == as_stored
    Host.objects.update(is_cordoned=True)
    passes.run_pass()
    assert version() != as_stored
    assert Session.objects.get(pk=waiting.pk).reason == Reason.NO_HOST
    assert Session.objects.get(pk=running.pk).reason == Reason.STARTED
    assert not waiting.events.exists()


@pytest.mark.django_db
def test_one_waiting_session_does_not_block_the_next() -> None:
    host = make_host(cpu=4)
    large = make_session(resource_group=host.group, cpu=3)
    run_session(host=host, cpu=2)
    small = make_session(resource_group=host.group, cpu=2)
    assert passes.run_pass() == 1
    assert [Session.objects.get(pk=each.pk).status for each in (large, small)] == [Status.PENDING, Status.SCHEDULED]


@pytest.mark.django_db(transaction=True)
def test_many_commits_request_one_pass() -> None:
    take_all("scheduler")
    for _ in range(20):
        kick.kick_scheduler()
    assert take_all("scheduler") == [KICK]
    tasks.run_pass()
    kick.kick_scheduler()
    kick.kick_scheduler()
    assert take_all("scheduler") == [KICK]


@pytest.mark.django_db(transaction=True)
def test_a_rollback_requests_no_pass() -> None:
    take_all("scheduler")
    with transaction.atomic():
        kick.kick_scheduler()
        transaction.set_rollback(True)
    assert take_all("scheduler") == []


@pytest.mark.django_db(transaction=True)
def test_a_commit_during_a_pass_requests_another() -> None:
    take_all("scheduler")
    host = make_host()
    holder_has_it, may_go_on = threading.Event(), threading.Event()

    def hold_the_lock() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [capacity_locks.GROUP_LOCK, host.group_id])
            holder_has_it.set()
            assert may_go_on.wait(SECONDS)
        connection.close()

    def run() -> int:
        try:
            return passes.run_pass()
        finally:
            connection.close()

    kick.kick_scheduler()
    with ThreadPoolExecutor(2) as threads:
        holder = threads.submit(hold_the_lock)
        assert holder_has_it.wait(SECONDS)
        running = threads.submit(run)
        until(is_a_pass_waiting)
        services.submit(make_user(), make_launch_request(host))
        assert take_all("scheduler") == [KICK, KICK]
        may_go_on.set()
        holder.result(SECONDS)
        assert running.result(SECONDS) == 1  # its snapshot is younger than the commit


@pytest.mark.django_db(transaction=True)
def test_concurrent_passes_place_each_session_once() -> None:
    host = make_host(gpus=2, cpu=16)
    services.submit(make_user(), make_launch_request(host, fgpu=500, count=20))
    together = threading.Barrier(4, timeout=SECONDS)

    def run(_: int) -> int:
        try:
            Session.objects.exists()  # the connection is open
            together.wait()
            return passes.run_pass()
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(run, range(4))) == [0, 0, 0, 8]
    assert Lease.objects.count() == 8
    assert held_on_gpus() == 4000
    assert set(Session.objects.values_list("attempt", flat=True)) == {0, 1}


def is_a_pass_waiting() -> bool:
    """Return whether another connection waits for the lock of passes."""
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = %s AND NOT granted"
    with connection.cursor() as cursor:
        cursor.execute(waiting, [capacity_locks.GROUP_LOCK])
        return bool(cursor.fetchone()[0])


@pytest.mark.django_db
def test_an_undividable_gpu_is_lent_whole() -> None:
    host = make_host(gpus=1)
    host.gpus.update(tier=Tier.NONE)
    part = make_session(resource_group=host.group, fgpu=500)
    assert passes.run_pass() == 0
    assert "can divide a GPU" in Session.objects.get(pk=part.pk).detail
    whole = make_session(resource_group=host.group, fgpu=2000)
    assert passes.run_pass() == 1
    assert Session.objects.get(pk=whole.pk).status == Status.SCHEDULED
    services.terminate(whole, actor=whole.owner)
    host.gpus.update(tier=Tier.HOOK)  # its worker was started anew, with the hook
    assert passes.run_pass() == 1
    assert Session.objects.get(pk=part.pk).status == Status.SCHEDULED


@pytest.mark.django_db
def test_a_cordoned_host_is_explained_as_closed() -> None:
    waiting = make_session(resource_group=make_host(is_cordoned=True).group)
    assert passes.run_pass() == 0
    assert "closed for new sessions" in Session.objects.get(pk=waiting.pk).detail
    Host.objects.update(status=HostStatus.LOST)
    passes.run_pass()
    assert Session.objects.get(pk=waiting.pk).detail == "No host of this session's resource group is ready."


@pytest.mark.django_db(transaction=True)
def test_a_long_queue_is_explained_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explanations, "MAX_EXPLAINED", 2)
    kicks: list[None] = []
    monkeypatch.setattr(passes, "kick_scheduler", lambda: kicks.append(None))
    host = make_host(cpu=2)
    waiting = [make_session(resource_group=host.group, cpu=3) for _ in range(3)]

    def reasons() -> list[str]:
        return [Session.objects.get(pk=session.pk).reason for session in waiting]

    passes.run_pass()
    assert (reasons(), len(kicks)) == ([Reason.NO_CAPACITY, Reason.NO_CAPACITY, Reason.SUBMITTED], 1)
    make_session(resource_group=host.group, cpu=1)
    waiting.append(make_session(resource_group=host.group, cpu=3))
    assert passes.run_pass() == 1  # what can start comes before the texts, and what has none before what has an old one
    assert (reasons(), len(kicks)) == ([Reason.NO_CAPACITY] * 4, 2)
    passes.run_pass()
    assert len(kicks) == 2
    assert {Session.objects.get(pk=session.pk).detail[-15:] for session in waiting} == {"most 1 is free."}


@pytest.mark.django_db(transaction=True)
def test_explanations_lock_rows_in_the_order_of_ids() -> None:
    """Two schedulers that explain the same sessions, in whatever order, end in no deadlock."""
    group = make_host().group
    first, last = sorted(make_session(resource_group=group).pk for _ in range(2))

    def explain() -> None:
        write_wait_statuses([WaitStatus(last, "NO_CAPACITY", "later"), WaitStatus(first, "NO_CAPACITY", "soon")])
        connection.close()

    with ThreadPoolExecutor() as pool:
        with transaction.atomic():
            Session.objects.select_for_update().get(pk=first)
            explaining = pool.submit(explain)
            until(is_somebody_waiting)
            Session.objects.select_for_update(nowait=True).get(pk=last)  # not locked yet
        explaining.result(SECONDS)
    assert set(Session.objects.values_list("detail", flat=True)) == {"later", "soon"}


def is_somebody_waiting() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return bool(cursor.fetchone()[0])
