"""Clusters in passes over the database: all members at once, or none."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connection, transaction

from resources import clock
from resources.models import Host
from scheduler import tasks
from scheduler.advice.estimate import estimate
from scheduler.core.types import Placement
from scheduler.cycle import passes
from sessions.clusters import settling
from sessions.launching import services
from sessions.launching.requests import ClusterRequest
from sessions.lifecycle import Reason, Status
from sessions.models import Cluster, ClusterMode, GpuShare, Lease, Session
from sessions.tests.launch_requests import make_launch_request
from tests.factories import make_group, make_host, make_policy, make_user, run_session
from tests.wait import until

pytestmark = pytest.mark.django_db


@pytest.fixture
def hosts() -> list[Host]:
    """Two hosts of 16 cores and 2 GPUs of 2 fGPU each, of one group."""
    group = make_group()
    return [make_host(group=group, gpus=2) for _ in range(2)]


def submit(host: Host, size: int, mode: ClusterMode = ClusterMode.ANY, **overrides: object) -> Session:
    cluster = ClusterRequest(size=size, mode=mode)
    request = make_launch_request(host, cluster=cluster, **overrides)
    return services.submit(make_user(policy=make_policy()), request)[0]


def statuses(head: Session) -> list[str]:
    return list(Session.objects.filter(cluster=head.pk).order_by("rank").values_list("status", flat=True))


def test_all_members_start_in_one_pass_on_own_gpus(hosts: list[Host]) -> None:
    head = submit(hosts[0], 4, fgpu=500)
    assert passes.run_pass() == 4
    assert statuses(head) == [Status.SCHEDULED] * 4
    assert Lease.objects.count() == 4
    assert GpuShare.objects.values("gpu").distinct().count() == 4


def test_members_spread_over_hosts(hosts: list[Host]) -> None:
    submit(hosts[0], 2, ClusterMode.SPREAD)
    passes.run_pass()
    assert set(Lease.objects.values_list("host", flat=True)) == {host.pk for host in hosts}


def test_members_on_several_hosts_are_near_each_other(hosts: list[Host]) -> None:
    first, second = hosts
    third = make_host(group=first.group)
    for path, near in (("rack1", {first.pk, third.pk}), ("rack2", {second.pk, third.pk})):
        Host.objects.filter(pk__in=near).update(topology=f"row1/{path}")
        head = submit(first, 2, ClusterMode.SPREAD)
        passes.run_pass()
        assert set(Session.objects.filter(cluster=head.pk).values_list("host", flat=True)) == near


def test_a_cluster_waits_whole_until_all_find_room(hosts: list[Host]) -> None:
    held = run_session(host=hosts[0], fgpu=2000)
    head = submit(hosts[0], 4, fgpu=500)
    assert passes.run_pass() == 0
    assert statuses(head) == [Status.PENDING] * 4
    head.refresh_from_db()
    assert head.reason == Reason.NO_CAPACITY
    services.terminate(held, actor=held.owner)
    held.move_to(Status.TERMINATED, Reason.USER_REQUEST)
    assert passes.run_pass() == 4


def test_a_waiting_cluster_says_how_many_have_room(hosts: list[Host]) -> None:
    held = [run_session(host=host, fgpu=2000, time_limit=timedelta(hours=1)) for host in (*hosts, hosts[0])]
    head = submit(hosts[0], 4, fgpu=2000)
    texts = []
    for ended in (None, *held):
        if ended is not None:
            services.terminate(ended, actor=ended.owner)
            ended.move_to(Status.TERMINATED, Reason.USER_REQUEST)
        passes.run_pass()
        head.refresh_from_db()
        texts.append(head.detail.partition(" Only")[0])
    each = "1 CPU core, 1 GiB of memory and 2 fGPU"
    assert texts[:3] == [f"Needs 4 members with {each} each: there is room for {found} now." for found in (1, 2, 3)]
    assert head.status == Status.SCHEDULED


def test_a_cluster_without_one_member_is_not_placed(hosts: list[Host]) -> None:
    gone = submit(hosts[0], 2)
    sub = Session.objects.get(cluster=gone.pk, rank=1)
    sub.move_to(Status.CANCELLED, Reason.USER_REQUEST)
    assert passes.run_pass() == 0
    placed = [Placement(gone.pk, hosts[0].pk, ()), Placement(sub.pk, hosts[0].pk, ())]
    assert services.assign(placed) == 0, "also where the scheduler did not know"
    settling.settle_all()
    assert statuses(gone) == [Status.CANCELLED] * 2


def test_a_returned_cluster_is_placed_again_once_all_wait(hosts: list[Host]) -> None:
    head = submit(hosts[0], 2)
    passes.run_pass()
    first, second = Session.objects.filter(cluster=head.pk).order_by("rank").select_related("host")
    first.move_to(Status.PENDING, Reason.CLAIM_TIMEOUT, fields={"host_id": None, "start_by": None})
    assert passes.run_pass() == 0
    settling.settle_all()
    assert statuses(head) == [Status.PENDING] * 2
    second.refresh_from_db()
    assert second.reason == Reason.CLUSTER_RETURNED
    settling.settle_all()
    assert passes.run_pass() == 2
    assert list(Session.objects.filter(cluster=head.pk).values_list("attempt", flat=True)) == [2, 2]


def test_a_refusal_of_one_member_sets_the_cluster_aside(hosts: list[Host]) -> None:
    head, other = submit(hosts[0], 2, fgpu=2000), submit(hosts[1], 2)
    gpu, sub = hosts[0].gpus.earliest("index").pk, Session.objects.get(cluster=head.pk, rank=1)
    twice = [Placement(each, hosts[0].pk, ((gpu, 2000),)) for each in (head.pk, sub.pk)]
    rest = [Placement(each.pk, hosts[1].pk, ()) for each in Session.objects.filter(cluster=other.pk)]
    placed, refused = services.assign_each([*twice, *rest], clock.now())
    assert (placed, list(refused)) == (2, [head.pk])
    assert statuses(head) == [Status.PENDING] * 2


def test_an_estimate_counts_all_members(hosts: list[Host]) -> None:
    def starts(size: int, **overrides: object) -> list[object]:
        request = make_launch_request(hosts[0], cluster=ClusterRequest(size=size), **overrides)
        return [session.starts for session in estimate(make_user(), request).advice.sessions]

    assert starts(4, fgpu=500) == ["now"]
    held = run_session(host=hosts[0], fgpu=1500, time_limit=timedelta(hours=1))
    assert starts(4, fgpu=1000, count=1) not in (["now"], [None])
    assert starts(3, fgpu=1000) == ["now"]
    assert held.status == Status.RUNNING


def test_what_is_proposed_instead_is_of_each_member(hosts: list[Host]) -> None:
    run_session(host=hosts[0], fgpu=1500)
    request = make_launch_request(hosts[0], cluster=ClusterRequest(size=4), fgpu=1000)
    (proposed,) = estimate(make_user(), request).advice.alternatives
    assert (proposed.fgpu_milli, proposed.cpu, proposed.starts) == (500, 1, "now")


def test_the_pass_settles_clusters_before(hosts: list[Host]) -> None:
    head = submit(hosts[0], 2)
    passes.run_pass()
    sub = Session.objects.get(cluster=head.pk, rank=1)
    sub.move_to(Status.CANCELLED, Reason.USER_REQUEST)
    tasks.run_pass()
    assert statuses(head) == [Status.CANCELLED] * 2


def test_a_returned_cluster_waits_until_it_is_settled(hosts: list[Host]) -> None:
    head = submit(hosts[0], 2)
    passes.run_pass()
    for member in Session.objects.filter(cluster=head.pk).select_related("host"):
        member.move_to(Status.PENDING, Reason.CLAIM_TIMEOUT, fields={"host_id": None, "start_by": None})
    assert passes.run_pass() == 0, "what it knows of hosts is not shared yet"
    settling.settle_all()
    assert passes.run_pass() == 2


def is_any_blocked() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0)")
        return bool(cursor.fetchone()[0])


@pytest.mark.django_db(transaction=True)
def test_placing_locks_a_cluster_before_its_members(hosts: list[Host]) -> None:
    head = submit(hosts[0], 2)
    members = Session.objects.filter(cluster=head.pk)
    placed = [Placement(member.pk, hosts[0].pk, ()) for member in members]

    def assign() -> int:
        try:
            with transaction.atomic():  # as a pass does
                return services.assign(placed)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            Cluster.objects.select_for_update(no_key=True).get(pk=head.pk)  # as whoever settles it
            placing = pool.submit(assign)
            until(is_any_blocked)
            assert len(members.select_for_update(nowait=True)) == 2, "who settles it can go on"
        assert placing.result() == 2
