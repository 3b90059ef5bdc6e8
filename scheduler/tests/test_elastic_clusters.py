"""Elastic members in passes over the database: after all others, within limits, and first to end."""

from datetime import timedelta
from typing import Any

import pytest

from resources.models import Host
from scheduler.core.types import Placement
from scheduler.cycle import passes
from sessions.clusters import settling
from sessions.launching import services
from sessions.launching.requests import ClusterRequest
from sessions.lifecycle import Reason, Status
from sessions.limits import held
from sessions.models import Cluster, ClusterMode, GpuShare, Session
from sessions.requeueing import preemption
from sessions.tests.launch_requests import make_launch_request
from tests.factories import make_group, make_host, make_policy, make_user, run_session

pytestmark = pytest.mark.django_db


@pytest.fixture
def hosts() -> list[Host]:
    """Two hosts of 16 cores and 2 GPUs of 2 fGPU each, of one group that ends preemptible sessions at once."""
    group = make_group(preemption_grace=timedelta(0))
    return [make_host(group=group, gpus=2) for _ in range(2)]


def submit(host: Host, size: int, max_size: int, mode: str = "any", **overrides: Any) -> Session:
    """Return the first member of a cluster that runs, not grown yet."""
    owner = overrides.pop("owner", None) or make_user(policy=make_policy())
    cluster = ClusterRequest(size=size, max_size=max_size, mode=ClusterMode(mode))
    head = services.submit(owner, make_launch_request(host, cluster=cluster, **overrides))[0]
    passes.run_pass()
    start(head)
    return head


def start(head: Session) -> None:
    for member in Session.objects.filter(cluster=head.pk, status=Status.SCHEDULED):
        member.move_to(Status.PREPARING, Reason.CLAIMED)
        member.move_to(Status.RUNNING, Reason.STARTED)
    settling.settle_all()


def grow(head: Session) -> None:
    while passes.run_pass():
        start(head)


def statuses(head: Session) -> list[str]:
    return list(Session.objects.filter(cluster=head.pk).order_by("rank").values_list("status", flat=True))


def stopped(head: Session) -> None:
    for member in Session.objects.filter(cluster=head.pk, status=Status.TERMINATING):
        preemption.conclude(member)
    settling.settle_all()


def test_each_has_a_gpu_of_its_own(hosts: list[Host]) -> None:
    head = submit(hosts[0], 2, 8, fgpu=500)
    grow(head)
    assert statuses(head).count(Status.RUNNING) == 4
    assert GpuShare.objects.values("gpu").distinct().count() == 4


def test_modes_hold_for_those_that_come_later(hosts: list[Host]) -> None:
    single = submit(hosts[0], 1, 9, "single-host", cpu=2)
    grow(single)
    used = Session.objects.filter(cluster=single.pk, host__isnull=False).values_list("host", flat=True)
    assert len(used) == 8
    assert len(set(used)) == 1
    spread = submit(hosts[0], 1, 4, "spread", cpu=1, memory=1 << 30)
    grow(spread)
    own = Session.objects.filter(cluster=spread.pk, host__isnull=False).values_list("host", flat=True)
    assert len(own) == len(set(own)) <= 2


def test_others_that_wait_come_first(hosts: list[Host]) -> None:
    head = submit(hosts[0], 1, 4, cpu=8)
    other = services.submit(make_user(policy=make_policy()), make_launch_request(hosts[0], cpu=16))[0]
    passes.run_pass()
    other.refresh_from_db()
    assert other.status == Status.SCHEDULED
    assert statuses(head) == [Status.RUNNING, Status.SCHEDULED, Status.PENDING, Status.PENDING]


def test_it_ends_before_others_for_a_session_that_waits(hosts: list[Host]) -> None:
    lesser = run_session(host=hosts[1], cpu=16, is_preemptible=True)
    head = submit(hosts[0], 1, 2, cpu=8)
    grow(head)
    assert statuses(head) == [Status.RUNNING] * 2
    waits = services.submit(make_user(policy=make_policy()), make_launch_request(hosts[0], cpu=8))[0]
    passes.run_pass()
    passes.run_pass()
    assert statuses(head) == [Status.RUNNING, Status.TERMINATING]
    lesser.refresh_from_db()
    assert lesser.preempt_by is None
    stopped(head)
    passes.run_pass()
    waits.refresh_from_db()
    assert waits.status == Status.SCHEDULED
    assert statuses(head) == [Status.RUNNING, Status.PENDING]
    assert Cluster.objects.get().host_addresses[1] == ""


def test_limits_are_left_to_sessions_that_wait(hosts: list[Host]) -> None:
    owner = make_user(policy=make_policy(cpu=4))
    head = submit(hosts[0], 1, 9, cpu=1, owner=owner)
    grow(head)
    assert statuses(head).count(Status.RUNNING) == 4
    waits = services.submit(owner, make_launch_request(hosts[0], cpu=2))[0]
    assert held.pending_of(owner) == 1, "elastic members do not wait"
    passes.run_pass()
    assert statuses(head).count(Status.TERMINATING) == 2
    assert statuses(head)[:2] == [Status.RUNNING] * 2
    passes.run_pass()
    assert statuses(head).count(Status.TERMINATING) == 2, "no more than are needed"
    stopped(head)
    assert passes.run_pass() == 1
    waits.refresh_from_db()
    assert waits.status == Status.SCHEDULED
    grow(head)
    assert statuses(head).count(Status.RUNNING) == 2


def test_it_does_not_grow_once_it_is_returning(hosts: list[Host]) -> None:
    head = submit(hosts[0], 1, 2, cpu=1)
    Cluster.objects.update(started_at=None)
    elastic = Session.objects.get(cluster=head.pk, rank=1)
    assert services.assign([Placement(elastic.pk, hosts[0].pk, ())]) == 0


def test_a_state_that_goes_on_grows_as_a_new_one(hosts: list[Host]) -> None:
    head = submit(hosts[0], 1, 3, cpu=1)
    grow(head)
    last = Session.objects.get(cluster=head.pk, rank=2)
    second = Session.objects.select_related("host").get(cluster=head.pk, rank=1)
    preemption.return_elastic([second], "Room is needed.")
    stopped(head)
    assert passes.run_pass() == 1
    second.refresh_from_db()
    assert (second.status, last.status) == (Status.SCHEDULED, Status.RUNNING)
