"""Live resize: what is refused, what is held meanwhile, and how it ends, whoever dies."""

from datetime import timedelta
from math import log
from typing import Any

import pytest
from django.db import connection
from django.db.models import Q
from django.utils import timezone

from resources.amounts.units import GIB, MIB
from resources.gpus.tiers import Tier
from resources.models import Host, HostStatus
from sessions.errors import GENERAL, RejectedError
from sessions.idle import usage_periods
from sessions.idle_rules import PERIOD, start_of_period
from sessions.launching import services
from sessions.lifecycle import Reason, Status
from sessions.models import FairUse, GpuShare, Lease, PastSize, Session, SessionUsage, UsagePeriod
from sessions.parking import services as parking
from sessions.resizing import services as resizing
from sessions.resizing.sizes import SessionSize, StoredResize
from sessions.sweeps import enforce_deadlines
from sessions.usage.report import ReportBy, report_of
from tests.factories import (
    make_host,
    make_image,
    make_policy,
    make_project,
    make_session,
    make_user,
    run_session,
    session_in,
)


@pytest.fixture
def host(db: None) -> Host:
    """A host of 8 cores, 16 GiB and one GPU of 2 fGPU."""
    return make_host(gpus=1, cpu=8, memory=16 * GIB)


@pytest.fixture
def session(host: Host) -> Session:
    return run_session(host=host, cpu=2, memory=2 * GIB, fgpu=500)


def resize(session: Session, **changes: int) -> Session:
    target = {"cpu": session.cpu, "memory": session.memory, "fgpu": session.fgpu} | changes
    return resizing.resize(session, SessionSize(**target), actor=session.owner)


def refused(session: Session, **changes: int) -> dict[str, str]:
    before = Session.objects.filter(pk=session.pk).values().get()
    with pytest.raises(RejectedError) as caught:
        resize(session, **changes)
    assert Session.objects.filter(pk=session.pk).values().get() == before
    return caught.value.errors


def check_now() -> None:
    """Let the constraints that are due at the commit speak now."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED")


def held(session: Session) -> tuple[int, int, int]:
    """Return the amounts of the lease, which are those of the session."""
    check_now()
    lease = Lease.objects.get(session=session)
    shares = list(GpuShare.objects.filter(lease=lease).values_list("milli", flat=True))
    session.refresh_from_db()
    assert (session.cpu, session.memory, session.fgpu) == (lease.cpu, lease.memory, sum(shares))
    return lease.cpu, lease.memory, sum(shares)


def number_of(session: Session) -> str:
    session.refresh_from_db()
    stored = StoredResize.of(session)
    assert stored is not None
    return stored.id


def reasons(session: Session) -> list[str]:
    return list(session.events.order_by("id").values_list("reason", flat=True))


def test_both_sizes_are_held_until_the_host_has_applied(session: Session) -> None:
    resize(session, cpu=4, memory=GIB, fgpu=1000)
    assert held(session) == (4, 2 * GIB, 1000)
    assert resizing.finish(session.pk, number_of(session))
    assert held(session) == (4, GIB, 1000)
    assert session.resize is None
    assert reasons(session)[-2:] == [Reason.RESIZING, Reason.RESIZED]
    resizing_event = session.events.get(reason=Reason.RESIZING)
    assert resizing_event.actor == session.owner
    assert resizing_event.detail == (
        "From 2 CPU cores, 2 GiB of memory and 0.5 fGPU to 4 CPU cores, 1 GiB of memory and 1 fGPU."
    )


def test_what_the_host_refused_leaves_everything_as_before(session: Session) -> None:
    resize(session, cpu=4, memory=GIB)
    assert resizing.finish(session.pk, number_of(session), "It uses 1.5 GiB of memory.")
    assert held(session) == (2, 2 * GIB, 500)
    assert session.resize is None
    last = session.events.order_by("id").last()
    assert last is not None
    assert (last.reason, last.detail) == (Reason.RESIZE_REFUSED, "It uses 1.5 GiB of memory.")


def test_the_end_counts_once_and_of_its_resize_alone(session: Session) -> None:
    resize(session, cpu=4)
    number = number_of(session)
    assert not resizing.finish(session.pk, "another")
    assert resizing.finish(session.pk, number)
    assert not resizing.finish(session.pk, number, "late")
    assert held(session) == (4, 2 * GIB, 500)


def test_the_same_size_changes_nothing_and_another_waits(session: Session) -> None:
    resize(session)
    assert reasons(session)[-1] == Reason.STARTED
    resize(session, cpu=4)
    resize(session, cpu=4)
    assert reasons(session).count(Reason.RESIZING) == 1
    assert "being resized" in refused(session, cpu=3)[GENERAL]


def test_more_than_its_host_has_free_is_refused(session: Session, host: Host) -> None:
    run_session(host=host, cpu=3, memory=10 * GIB, fgpu=1000)
    assert "at most 5 CPU cores" in refused(session, cpu=6)["cpu"]
    assert "at most 6 GiB" in refused(session, memory=7 * GIB)["memory"]
    assert "at most 1 fGPU" in refused(session, fgpu=1010)["fgpu"]
    resize(session, cpu=5, memory=6 * GIB, fgpu=1000)
    assert held(session) == (5, 6 * GIB, 1000)


def test_limits_of_user_and_project_bound_all_sessions_together(host: Host) -> None:
    owner = make_user(policy=make_policy(cpu=4))
    project = make_project(owner, policy=make_policy(memory=4 * GIB), name="vision")
    session = run_session(host=host, owner=owner, project=project, cpu=2, memory=2 * GIB)
    run_session(host=host, owner=owner, cpu=1)
    run_session(host=host, project=project, memory=GIB)
    assert refused(session, cpu=4)["cpu"] == (
        "Your policy allows at most 4 CPU cores in all, of which 3 CPU cores are held."
    )
    assert refused(session, memory=4 * GIB)["memory"].startswith("The project vision allows at most 4 GiB of memory")
    owner.policy.cpu = 1  # lowered since: what is smaller is not refused
    owner.policy.save()
    resize(session, cpu=1, memory=3 * GIB)


def test_amounts_that_no_session_may_have_are_refused(host: Host) -> None:
    image = make_image(min_memory=GIB, environment="Big", version="1")
    session = run_session(host=host, image=image, memory=4 * GIB, shared_memory=2 * GIB, fgpu=500)
    assert "at least 1 CPU core" in refused(session, cpu=0)["cpu"]
    assert "shared memory takes 2 GiB" in refused(session, memory=GIB + MIB)["memory"]
    assert "needs at least 1 GiB" in refused(run_session(image=image, memory=GIB), memory=512 * MIB)["memory"]
    assert "steps of 0.01" in refused(session, fgpu=505)["fgpu"]


@pytest.mark.parametrize("fgpu", [0, 2000, 2500])
def test_a_part_of_a_gpu_stays_one(session: Session, fgpu: int) -> None:
    assert "from 0.01 to 1.99 fGPU" in refused(session, fgpu=fgpu)["fgpu"]


def test_gpus_that_cannot_change_are_refused_with_the_reason(host: Host) -> None:
    assert "without a GPU" in refused(run_session(host=host), fgpu=500)["fgpu"]
    assert "a whole GPU" in refused(run_session(fgpu=2000), fgpu=500)["fgpu"]
    assert "several GPUs" in refused(run_session(fgpu=2500), fgpu=500)["fgpu"]
    shared_by_mps = run_session(fgpu=500)
    shared_by_mps.host.gpus.update(tier=Tier.HOOK_MPS.value)  # type: ignore[union-attr]
    assert "by MPS" in refused(shared_by_mps, fgpu=1000)["fgpu"]
    resize(run_session(fgpu=2000), cpu=1, memory=2 * GIB)  # the rest of it can be


def test_the_gpu_memory_asked_for_at_launch_stays(host: Host) -> None:
    session = run_session(host=host, fgpu=1000, min_gpu_memory=3 * GIB)
    assert "at least 3 GiB of GPU memory" in refused(session, fgpu=700)["fgpu"]
    resize(session, fgpu=750)


def test_who_waits_comes_before_who_grows(session: Session, host: Host) -> None:
    waiting = {"resource_group": host.group, "reason": Reason.NO_CAPACITY.value}
    make_session(**waiting)
    assert "go" in refused(session, cpu=3)[GENERAL]
    resize(session, cpu=1)
    resizing.finish(session.pk, number_of(session))
    admin = make_user(is_superuser=True)
    session.refresh_from_db()
    resizing.resize(session, SessionSize(cpu=3, memory=session.memory, fgpu=session.fgpu), actor=admin)
    assert held(session)[0] == 3


@pytest.mark.parametrize("status", [Status.PREPARING, Status.TERMINATING, Status.PARKED, Status.ERROR])
def test_only_a_running_session_is_resized(db: None, status: Status) -> None:
    assert "running" in refused(session_in(status), cpu=2)[GENERAL]


def test_hosts_that_are_leaving_enlarge_nothing(session: Session, host: Host) -> None:
    Host.objects.filter(pk=host.pk).update(is_cordoned=True)
    assert "smaller" in refused(session, cpu=3)[GENERAL]
    resize(session, cpu=1)
    resizing.finish(session.pk, number_of(session))
    Host.objects.filter(pk=host.pk).update(status=HostStatus.LOST)
    session.refresh_from_db()
    assert "not ready" in refused(session, memory=GIB)[GENERAL]


def test_a_session_that_ends_meanwhile_is_resized_no_more(session: Session) -> None:
    resize(session, cpu=4)
    number = number_of(session)
    services.terminate(session, actor=session.owner)
    assert not resizing.finish(session.pk, number)
    assert held(session)[0] == 4
    session.move_to(Status.TERMINATED, Reason.USER_REQUEST)
    session.refresh_from_db()
    assert session.resize is None
    check_now()


def test_a_requeued_session_asks_for_what_it_had(host: Host) -> None:
    session = run_session(host=host, cpu=2, kind="batch", command="true", is_preemptible=True)
    resize(session, cpu=4, memory=GIB)
    session.move_to(Status.TERMINATING, Reason.PREEMPTED)
    session.move_to(Status.PENDING, Reason.PREEMPTED, fields={"host_id": None, "started_at": None})
    session.refresh_from_db()
    assert (session.cpu, session.memory, session.resize) == (2, GIB, None)
    check_now()


def test_a_session_is_not_parked_while_it_is_resized(session: Session) -> None:
    resize(session, cpu=4)
    with pytest.raises(RejectedError, match="being resized"):
        parking.park(session, actor=session.owner)


def test_a_host_that_never_applies_it_leaves_the_larger(session: Session) -> None:
    resize(session, cpu=4, memory=GIB)
    enforce_deadlines()
    assert session.events.filter(reason=Reason.RESIZE_REFUSED).count() == 0
    resizing.give_up_late(timezone.now() + resizing.DEADLINE + timedelta(seconds=1))
    assert held(session) == (4, 2 * GIB, 500)
    assert session.resize is None
    resize(session, memory=GIB)


def test_what_was_given_up_can_be_asked_for_again(session: Session) -> None:
    resize(session, cpu=4)
    resizing.give_up_late(timezone.now() + resizing.DEADLINE + timedelta(seconds=1))
    session.refresh_from_db()
    resize(session, cpu=4)  # its container may have two still
    assert resizing.finish(session.pk, number_of(session))
    session.refresh_from_db()
    assert session.events.filter(reason=Reason.RESIZED).count() == 1
    resize(session, cpu=4)
    session.refresh_from_db()
    assert (session.resize, session.cpu) == (None, 4)


def test_what_was_held_before_is_recorded(session: Session) -> None:
    resize(session, cpu=4)
    resizing.finish(session.pk, number_of(session))
    session.refresh_from_db()
    resize(session, cpu=1)
    resizing.finish(session.pk, number_of(session))
    assert list(PastSize.objects.filter(session=session).values_list("cpu", flat=True)) == [2, 4]


@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 1)])
def test_fair_share_charges_each_size_for_its_time(host: Host, before: int, after: int) -> None:
    session = run_session(host=host, cpu=before)
    Session.objects.filter(pk=session.pk).update(started_at=timezone.now() - timedelta(hours=2))
    resize(session, cpu=after)
    resizing.finish(session.pk, number_of(session))
    session.refresh_from_db()
    session.move_to(Status.TERMINATED, Reason.CONTAINER_EXITED)
    use = FairUse.objects.get(user=session.owner)
    half = host.group.half_life.total_seconds()
    expected = before * half / log(2) * (1 - 2 ** (-7200 / half))
    assert use.cpu_seconds == pytest.approx(expected, rel=0.002)
    assert use.memory_byte_seconds == pytest.approx(expected / before * GIB, rel=0.002)


def test_the_report_counts_each_size_for_its_time(host: Host) -> None:
    session = run_session(host=host, cpu=2, fgpu=500)
    now = timezone.now()
    resize(session, cpu=4, fgpu=1000)
    resizing.finish(session.pk, number_of(session))
    session.events.update(at=now - timedelta(hours=30))
    PastSize.objects.update(until=now - timedelta(hours=10))
    day = (now - timedelta(days=3)).date()
    report = report_of(Q(owner=session.owner), day, now.date(), ReportBy.USER, now)
    assert report.total.cpu_hours == pytest.approx(20 * 2 + 10 * 4, rel=0.001)
    assert report.total.gpu_hours == pytest.approx((20 * 0.5 + 10 * 1) / 2, rel=0.001)


def test_periods_rest_on_the_least_that_was_held(host: Host) -> None:
    session = run_session(host=host, cpu=2, fgpu=500)
    begin = start_of_period(timezone.now()) - 3 * PERIOD
    rows = [SessionUsage(session=session, at=begin + n * timedelta(seconds=10), cpu_milli=500) for n in range(89)]
    SessionUsage.objects.bulk_create(rows)
    resize(session, cpu=4, fgpu=1000)
    resizing.finish(session.pk, number_of(session))
    PastSize.objects.update(until=begin + PERIOD + timedelta(minutes=2))
    usage_periods.record_periods(begin + 3 * PERIOD + timedelta(minutes=1))
    periods = UsagePeriod.objects.order_by("at").values_list("cpu_percent", "fgpu")
    assert list(periods) == [(25.0, 500), (25.0, 500), (12.5, 1000)]


def test_sizes_read_as_amounts() -> None:
    assert str(SessionSize(cpu=1, memory=GIB, fgpu=0)) == "1 CPU core and 1 GiB of memory"


def test_groups_are_locked_while_a_lease_grows(session: Session, django_assert_max_num_queries: Any) -> None:
    with django_assert_max_num_queries(19) as captured:
        resize(session, cpu=4)
    statements = [each["sql"] for each in captured.captured_queries]
    locks = [place for place, sql in enumerate(statements) if "pg_advisory_xact_lock" in sql]
    first_read = next(place for place, sql in enumerate(statements) if "compute_lease" in sql)
    assert len(locks) == 3
    assert max(locks) < first_read
