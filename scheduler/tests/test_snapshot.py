"""Reading the state of a pass: correct amounts, in a constant number of queries."""

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from accounts.limits import Amounts, PolicyLimits
from resources.amounts.units import GIB
from resources.gpus import simulated as simulated_gpus
from resources.models import HostStatus, PlacementChoice, QueueOrderChoice, ResourceGroup
from scheduler.core import types
from scheduler.core.types import GpuView, HostView, LimitHolder, SessionRequest
from scheduler.core.waiting.run_times import stem_of
from scheduler.snapshot import queue as snapshot
from sessions.lifecycle import LIVE, Status
from sessions.models import WaitStatus
from tests.factories import (
    make_gpu,
    make_group,
    make_host,
    make_policy,
    make_session,
    make_user,
    run_session,
    session_in,
)

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("count", [1, 30])
def test_a_snapshot_takes_twenty_queries(count: int, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    for _ in range(count):
        host = make_host(gpus=1)
        run_session(host=host, fgpu=500)
        make_session(resource_group=host.group)
    with django_assert_num_queries(20):
        loaded = snapshot.load(timezone.now())
    assert len(loaded.snapshot.hosts) == len(loaded.snapshot.queue) == len(loaded.snapshot.owners) == count


def test_devices_of_another_kind_than_the_groups_are_not_lent() -> None:
    """As of a host worker of the version before, or one that lies."""
    host = make_host(gpus=2)
    host.gpus.filter(index=0).update(kind="amd.com/gpu")
    (view,) = snapshot.load(timezone.now()).snapshot.hosts
    assert [gpu.id for gpu in view.gpus] == [host.gpus.get(index=1).pk]
    host.gpus.update(kind="amd.com/gpu")
    (view,) = snapshot.load(timezone.now()).snapshot.hosts
    assert not view.gpus
    assert not [trait for trait in view.traits if trait.startswith("gpu_")]


def test_free_is_what_the_leases_leave() -> None:
    group = make_group(fgpu_per_gpu=2)
    host = make_host(group=group, gpus=2, cpu=10, memory=10 * GIB, cluster_address="")
    idle = make_host(group=group, cpu=4, memory=4 * GIB, cluster_address="")
    first, second = host.gpus.order_by("index")
    run_session(host=host, cpu=2, memory=3 * GIB, fgpu=2500)
    run_session(host=host, cpu=1, memory=GIB, fgpu=250)
    session_in(Status.ERROR, host=host, cpu=5)
    make_session(resource_group=group)
    gpus = (
        GpuView(id=first.pk, capacity_milli=2000, free_milli=0),
        GpuView(id=second.pk, capacity_milli=2000, free_milli=1250),
    )
    busy = HostView(
        id=host.pk,
        name=host.name,
        group_id=group.pk,
        cpu=10_000,
        memory_bytes=10 * GIB,
        cpu_free=7000,
        memory_free_bytes=6 * GIB,
        gpus=gpus,
        traits=frozenset({f"gpu_memory:{8 * GIB}", f"gpu_size:{8 * GIB}", "gpu_model:Simulated GPU"}),
    )
    empty = HostView(
        id=idle.pk,
        name=idle.name,
        group_id=group.pk,
        cpu=4000,
        memory_bytes=4 * GIB,
        cpu_free=4000,
        memory_free_bytes=4 * GIB,
    )
    assert set(snapshot.load(timezone.now()).snapshot.hosts) == {busy, empty}


def test_the_closeness_of_devices_is_that_of_their_topology() -> None:
    host = make_host(gpus=3)
    host.gpu_topology = simulated_gpus.topology(
        simulated_gpus.declared("2x8GiB nvlink=4 numa=0,2x8GiB numa=1")
    ).as_json()
    host.save()
    host.gpus.filter(index=0).update(is_present=False)
    make_session(resource_group=host.group)
    (offered,) = snapshot.load(timezone.now()).snapshot.hosts
    assert offered.closeness == ((0, 10), (10, 0))


def test_only_hosts_that_may_take_sessions_are_offered() -> None:
    group = make_group()
    ready = make_host(group=group)
    make_host(group=group, status=HostStatus.JOINING)
    make_host(group=group, status=HostStatus.LOST)
    make_host(group=group, is_cordoned=True)
    inactive = make_host()
    ResourceGroup.objects.filter(pk=inactive.group_id).update(is_active=False)
    make_session(resource_group=group)
    assert [host.id for host in snapshot.load(timezone.now()).snapshot.hosts] == [ready.pk]


def test_absent_gpus_are_not_offered() -> None:
    host = make_host(gpus=1)
    make_gpu(host=host, index=1, is_present=False)
    make_session(resource_group=host.group)
    (offered,) = snapshot.load(timezone.now()).snapshot.hosts
    assert [gpu.id for gpu in offered.gpus] == [host.gpus.get(is_present=True).pk]


def test_the_queue_is_ordered_by_priority_then_wait() -> None:
    late, urgent = make_session(), make_session(priority=20)
    avoided = make_host()
    early = make_session(created_at=urgent.created_at.replace(year=2020), avoided_hosts=[avoided.pk], fgpu=500)
    for status in LIVE - {Status.PENDING}:
        session_in(status)
    queue = snapshot.load(timezone.now()).snapshot.queue
    assert [request.id for request in queue] == [urgent.pk, early.pk, late.pk]
    assert queue[1] == SessionRequest(
        id=early.pk,
        owner_id=early.owner_id,
        group_id=early.resource_group_id,
        cpu=1,
        memory_bytes=GIB,
        fgpu_milli=500,
        avoided_host_ids=(avoided.pk,),
        image_id=early.image_id,
        priority=10,
        queued_at=early.created_at,
        core_milli=1000,
        stem=stem_of(early.name),
    )


def test_owners_have_limits_and_usage_over_all_groups() -> None:
    owner = make_user(policy=make_policy(cpu=8, max_sessions=3))
    run_session(owner=owner, cpu=2, fgpu=500)
    run_session(owner=owner, cpu=1)
    waiting = make_session(owner=owner)
    held = Amounts(cpu=3, memory=2 * GIB, fgpu=500, sessions=2)
    loaded = snapshot.load(timezone.now())
    assert loaded.snapshot.owners == {owner.pk: LimitHolder(limits=PolicyLimits(cpu=8, sessions=3), used=held)}
    assert [(waiter.request.owner_id, waiter.status) for waiter in loaded.waiting] == [
        (owner.pk, WaitStatus(waiting.pk, "SUBMITTED", ""))
    ]


def test_model_choices_equal_the_cores_enumerations() -> None:
    assert PlacementChoice.values == [placement_policy.value for placement_policy in types.PlacementPolicyName]
    assert QueueOrderChoice.values == [order.value for order in types.QueueOrder]
    rules, group = types.Rules(), ResourceGroup()
    assert (group.placement, group.queue_order) == (rules.placement_policy, rules.queue_order)
    assert (group.ageing, group.reservation_delay) == (rules.ageing, rules.reservation_delay)


def test_a_policy_of_the_version_before_is_balance() -> None:
    """Seen red without the name of before."""
    host = make_host()
    ResourceGroup.objects.update(placement="fgd")
    rules = snapshot.load(timezone.now()).snapshot.rules
    assert rules[host.group_id].placement_policy == types.PlacementPolicyName.BALANCE


def test_the_model_of_a_running_session_is_read() -> None:
    """Seen red without the column."""
    session = run_session(host=make_host(gpus=1), fgpu=500)
    type(session).objects.update(gpu_model="A100")
    assert [running.gpu_model for running in snapshot.load(timezone.now()).snapshot.running] == ["A100"]
