"""Weights of GPU models on the database: recorded at the placement, charged in fair share, told in usage reports.

Seen to fail under these faults, planted in the product: the placement writes no weight, or that of the first GPU; the
charge at the end, or at a resize, forgets it; what a session held before it was placed anew is not recorded; a cached
state is not told of a new weight; weights of 1 are multiplied in last.
"""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pytest
from django.db import connection
from django.db.models import Q
from django.test import Client
from django.utils import timezone

from resources.amounts.units import GIB
from resources.models import GpuWeight, Host
from scheduler.cycle import passes
from scheduler.snapshot import queue as snapshot
from sessions.lifecycle import Reason, Status
from sessions.models import FairUse, PastSize, Session
from sessions.resizing import services as resizing
from sessions.resizing.sizes import SessionSize
from sessions.usage.report import ReportBy, UsageReport, report_of
from tests.factories import make_gpu, make_group, make_host, make_policy, make_session, make_user, run_session

pytestmark = pytest.mark.django_db
HOUR: Final = timedelta(hours=1)
FAST: Final = "NVIDIA H100 80GB HBM3"


@pytest.fixture
def fast() -> Host:
    GpuWeight.objects.create(model=FAST, weight=Decimal("2.5"))
    host = make_host(group=make_group(queue_order="fair", fgpu_per_gpu=1))
    make_gpu(host=host, name=FAST)
    return host


def placed(host: Host, **fields: Any) -> Session:
    session = make_session(**{"resource_group": host.group, "fgpu": 500, "cpu": 1, "memory": GIB} | fields)
    assert passes.run_pass() == 1
    session.refresh_from_db()
    return session


def run_for(session: Session, span: timedelta) -> None:
    session.move_to(Status.PREPARING, Reason.CLAIMED)
    session.move_to(Status.RUNNING, Reason.STARTED)
    Session.objects.filter(pk=session.pk).update(started_at=timezone.now() - span)
    session.refresh_from_db()


def report(now: datetime) -> UsageReport:
    return report_of(Q(), (now - timedelta(days=2)).date(), now.date(), ReportBy.USER, now)


def test_a_session_keeps_the_weight_of_its_placement(fast: Host) -> None:
    before = placed(fast)
    GpuWeight.objects.update(weight=4)
    after = placed(fast)
    before.refresh_from_db()
    assert (before.gpu_weight_milli, after.gpu_weight_milli) == (2500, 4000)


def test_gpus_of_several_models_count_by_their_mean(fast: Host) -> None:
    make_gpu(host=fast, index=1)
    make_gpu(host=fast, index=2)
    assert placed(fast, fgpu=3000).gpu_weight_milli == (2500 + 1000 + 1000) // 3
    assert placed(fast, fgpu=0).gpu_weight_milli == 1000


def test_fair_share_is_charged_by_the_weight(fast: Host) -> None:
    session = placed(fast)
    run_for(session, HOUR)
    session.move_to(Status.TERMINATED, Reason.CONTAINER_EXITED)
    use = FairUse.objects.get()
    assert use.fgpu_milli_seconds == pytest.approx(use.memory_byte_seconds / GIB * 500 * 2.5)


def test_a_weight_of_one_changes_no_bit_of_the_charge() -> None:
    host, now = make_host(gpus=8, cpu=64), timezone.now()
    for number in range(12):
        session = run_session(host=host, cpu=1, memory=GIB, fgpu=330)
        ended = {"started_at": now - number * 1.2345 * HOUR, "ended_at": now, "status": Status.TERMINATED.value}
        session.lease.delete()
        Session.objects.filter(pk=session.pk).update(**ended)
    for use in FairUse.objects.all():
        assert use.fgpu_milli_seconds == use.memory_byte_seconds / GIB * 330  # exact: by a power of two
    total = report(timezone.now()).total
    assert (total.weighted_gpu_hours, total.is_weighted) == (total.gpu_hours, False)


def test_a_resize_charges_the_difference_by_the_weight(fast: Host) -> None:
    session = placed(fast)
    run_for(session, HOUR)
    resizing.resize(session, SessionSize(cpu=1, memory=GIB // 2, fgpu=250), actor=session.owner)
    session.refresh_from_db()
    assert session.resize is not None
    resizing.finish(session.pk, session.resize["id"])
    use = FairUse.objects.get()
    assert use.fgpu_milli_seconds == pytest.approx(use.memory_byte_seconds / (GIB // 2) * 250 * 2.5)


def test_a_session_that_moves_is_counted_by_each_model(fast: Host) -> None:
    session = placed(fast)
    run_for(session, HOUR)
    session.move_to(Status.TERMINATING, Reason.PREEMPTED)
    session.lease.delete()
    session.move_to(Status.PENDING, Reason.PREEMPTED, fields={"host_id": None, "started_at": None})
    Host.objects.filter(pk=fast.pk).update(is_cordoned=True)
    make_host(group=fast.group, gpus=1)
    assert passes.run_pass() == 1
    session.refresh_from_db()
    past = PastSize.objects.get()
    assert (past.fgpu, past.gpu_weight_milli, session.gpu_weight_milli) == (500, 2500, 1000)
    run_for(session, timedelta(0))
    now = timezone.now()
    session.events.filter(pk__lt=session.events.get(old_status="TERMINATING").pk).update(at=now - 10 * HOUR)
    session.events.filter(old_status="TERMINATING").update(at=now - 8 * HOUR)
    later = session.events.filter(old_status="PENDING").latest("pk")
    session.events.filter(pk__gte=later.pk).update(at=now - 4 * HOUR)
    PastSize.objects.update(until=now - 4 * HOUR)
    Session.objects.update(created_at=now - 10 * HOUR)
    total = report(now).total
    assert total.gpu_hours == pytest.approx(0.5 * (2 + 4), rel=1e-4)
    assert total.weighted_gpu_hours == pytest.approx(0.5 * (2 * 2.5 + 4), rel=1e-4)


def test_a_state_has_recorded_weights_and_those_of_now(fast: Host) -> None:
    session = placed(fast)
    (row,) = snapshot.load(timezone.now()).snapshot.running
    assert row.gpu_weight == 2500
    GpuWeight.objects.update(weight=5)
    (host,) = passes.caches.of(fast.group_id).take(timezone.now()).incremental.cluster.groups[fast.group_id].host_views
    assert [gpu.weight for gpu in host.gpus] == [5000]
    assert Session.objects.get(pk=session.pk).gpu_weight_milli == 2500


def whole_reads() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM compute_change WHERE sessions IS NULL")
        return int(cursor.fetchone()[0])


def test_schedulers_read_everything_anew_after_a_change() -> None:
    before = whole_reads()
    GpuWeight.objects.create(model=FAST, weight=2)
    GpuWeight.objects.update(weight=3)
    GpuWeight.objects.all().delete()
    assert whole_reads() == before + 3


def test_pages_show_weighted_hours_where_they_differ(fast: Host, client: Client) -> None:
    session = placed(fast)
    run_for(session, HOUR)
    session.events.update(at=timezone.now() - 4 * HOUR)
    client.force_login(session.owner)
    page = client.get("/usage/").content.decode()
    assert "<td>2.0</td><td>5.0</td>" in page
    assert "Weighted:" in page
    row = client.get("/usage/csv/").content.decode().splitlines()[1].split(",")
    assert (float(row[2]), float(row[-1])) == pytest.approx((2, 5), abs=0.1)
    Session.objects.update(gpu_weight_milli=1000)
    page = client.get("/usage/").content.decode()
    assert "<td>2.0</td>" in page
    assert "eighted" not in page


def test_limits_still_count_gpus(fast: Host) -> None:
    make_gpu(host=fast, index=1, name=FAST)
    owner = make_user(policy=make_policy(fgpu=2000))
    assert [placed(fast, owner=owner, fgpu=1000).gpu_weight_milli for _ in range(2)] == [2500, 2500]
