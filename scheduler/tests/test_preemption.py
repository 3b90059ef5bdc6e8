"""Preemptible sessions end for others that wait: as few as possible, after a warning, and never for nothing."""

import json
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from accounts.models import User
from hostworker.containers import runner
from hostworker.runtime.memory.runtime import MemoryRuntime
from resources.models import Host, ResourceGroup
from scheduler.cycle import passes
from scheduler.state import preemption_search
from scheduler.state.scheduler_state import SchedulerState
from sessions.clusters import settling
from sessions.launching import services
from sessions.lifecycle import Kind, Reason, Status
from sessions.models import Cluster, Session
from sessions.requeueing.preemption import StoredClaim
from tests.factories import (
    make_cluster,
    make_group,
    make_host,
    make_policy,
    make_session,
    make_user,
    run_cluster,
    run_session,
)

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)
NO_GRACE = timedelta(0)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    passes.caches.clear()


@pytest.fixture
def host() -> Host:
    return make_host(group=make_group(fgpu_per_gpu=1), gpus=2, cpu=64)


def victim(host: Host, fgpu: int = 1000, *, hours: float = 1, **overrides: Any) -> Session:
    """Return a preemptible session that has run for so long."""
    overrides = {"is_preemptible": True, "owner": make_user(), **overrides}
    session = run_session(host=host, fgpu=fgpu, **overrides)
    Session.objects.filter(pk=session.pk).update(started_at=timezone.now() - hours * HOUR)
    return session


def waits(host: Host, fgpu: int = 1000, **overrides: Any) -> Session:
    return make_session(resource_group=host.group, fgpu=fgpu, **overrides)


def warned(*sessions: Session) -> list[bool]:
    """Return which of the sessions are to end for another."""
    return [Session.objects.get(pk=session.pk).preempt_by is not None for session in sessions]


def status(session: Session) -> str:
    return Session.objects.get(pk=session.pk).status


def stop(session: Session) -> None:
    """Stop the container of a session as its host does."""
    runner.stop(MemoryRuntime(uuid4().hex, "here"), session.pk, session.attempt)


def grace(group: ResourceGroup, span: timedelta) -> None:
    ResourceGroup.objects.filter(pk=group.pk).update(preemption_grace=span)


def test_the_youngest_is_warned_and_the_waiting_one_notified(host: Host) -> None:
    old, young, waiting = victim(host, hours=9), victim(host, hours=1), waits(host)
    passes.run_pass()
    assert warned(old, young) == [False, True]
    young.refresh_from_db()
    waiting.refresh_from_db()
    assert young.preempted_for == waiting.pk
    assert (waiting.status, waiting.reason) == (Status.PENDING, Reason.PREEMPTION)
    assert young.preempt_by is not None
    assert waiting.eta is not None
    assert waiting.eta >= young.preempt_by
    passes.run_pass()
    assert (warned(old, young), status(young)) == ([False, True], Status.RUNNING)


def test_it_ends_after_the_warning_and_the_other_starts(host: Host) -> None:
    grace(host.group, NO_GRACE)
    one, two, waiting = victim(host, hours=2), victim(host, hours=1, kind=Kind.BATCH.value, command="x"), waits(host)
    for _ in range(2):
        passes.run_pass()
    assert (status(one), status(two), status(waiting)) == (Status.RUNNING, Status.TERMINATING, Status.PENDING)
    stop(two)
    passes.run_pass()
    assert (status(waiting), status(two)) == (Status.SCHEDULED, Status.PENDING)
    assert Session.objects.get(pk=waiting.pk).claim is None
    passes.run_pass()
    assert warned(one) == [False]


def cluster_of(*hosts: Host, hours: float = 1, **overrides: Any) -> list[Session]:
    """Return the members of a preemptible cluster with a GPU each that has run for so long."""
    members = run_cluster(len(hosts), hosts=hosts, fgpu=1000, is_preemptible=True, **overrides)
    begun = timezone.now() - hours * HOUR
    Session.objects.filter(cluster=members[0].pk).update(started_at=begun)
    Cluster.objects.update(started_at=begun)
    return members


def test_a_cluster_costs_all_its_members_and_ends_whole() -> None:
    host = make_host(group=make_group(fgpu_per_gpu=1), gpus=2, cpu=64)
    other = make_host(group=host.group, gpus=1, cpu=64)
    members, old = cluster_of(host, other), victim(host, hours=99)
    first, second = waits(host), waits(host)
    for _ in range(2):  # the second waits until it is told why
        passes.run_pass()
    assert warned(old, *members) == [True, True, True]
    assert {Session.objects.get(pk=each.pk).preempted_for for each in members} == {second.pk}
    assert Session.objects.get(pk=old.pk).preempted_for == first.pk


@pytest.mark.parametrize("batch", [{"kind": Kind.BATCH.value, "command": "train"}, {}])
def test_a_preempted_cluster_returns_whole_if_it_is_batch(host: Host, batch: dict[str, Any]) -> None:
    grace(host.group, NO_GRACE)
    members, waiting = cluster_of(host, host, **batch), waits(host)
    for _ in range(2):
        passes.run_pass()
    assert [status(each) for each in members] == [Status.TERMINATING] * 2
    for each in members:
        stop(each)
    settling.settle_all()
    assert [status(each) for each in members] == [Status.PENDING if batch else Status.TERMINATED] * 2
    for _ in range(2):
        settling.settle_all()
        passes.run_pass()
    assert status(waiting) == Status.SCHEDULED
    assert [status(each) for each in members] == [Status.PENDING if batch else Status.TERMINATED] * 2


def waiting_cluster(*hosts: Host, size: int = 2, **overrides: Any) -> list[Session]:
    return make_cluster(size, resource_group=hosts[0].group, fgpu=1000, **overrides)


def test_sessions_on_several_hosts_end_for_a_cluster() -> None:
    group = make_group(fgpu_per_gpu=1, preemption_grace=NO_GRACE)
    hosts = [make_host(group=group, gpus=1) for _ in range(3)]
    running = [victim(host, hours=hours) for host, hours in zip(hosts, (9, 1, 2), strict=True)]
    members = waiting_cluster(*hosts)
    passes.run_pass()
    assert warned(*running) == [False, True, True]
    head = Session.objects.get(pk=members[0].pk)
    assert head.claim is not None
    assert (head.reason, len(head.claim["placed"])) == (Reason.PREEMPTION, 2)
    passes.caches.clear()
    passes.run_pass()
    stop(running[1])
    single = waits(hosts[0])
    passes.run_pass()
    assert [status(each) for each in (single, *members)] == [Status.PENDING] * 3, "all members or none"
    stop(running[2])
    passes.run_pass()
    assert [status(each) for each in members] == [Status.SCHEDULED] * 2
    assert {Session.objects.get(pk=each.pk).host_id for each in members} == {hosts[1].pk, hosts[2].pk}
    assert Session.objects.get(pk=members[0].pk).claim is None


def test_nobody_ends_for_half_a_cluster() -> None:
    host = make_host(group=make_group(fgpu_per_gpu=1), gpus=1)
    other = make_host(group=host.group, gpus=1)
    running, _ = victim(host), run_session(host=other, fgpu=1000)
    waiting_cluster(host)
    for _ in range(2):
        passes.run_pass()
    assert warned(running) == [False]


def test_a_claim_of_the_version_before_is_read(host: Host) -> None:
    gpus = [gpu.pk for gpu in host.gpus.order_by("index")]
    old = {"group_id": 1, "host_id": host.pk, "shares": [[gpu, 1000] for gpu in gpus], "at": timezone.now().isoformat()}
    claim = StoredClaim.from_json(old, 2)
    assert claim.placed == ((2, host.pk, tuple((gpu, 1000) for gpu in gpus)),)
    stored = json.loads(json.dumps(claim.as_json()))
    assert stored.items() >= old.items()
    assert StoredClaim.from_json(stored, 1) == claim


def test_a_preemptible_cluster_fills_no_gap_in_vain(host: Host) -> None:
    running, large = victim(host), waits(host, 2000)
    members = make_cluster(2, resource_group=host.group, fgpu=0, cpu=30, is_preemptible=True)
    Session.objects.filter(pk=large.pk).update(cpu=62)
    for _ in range(2):
        passes.run_pass()
        assert [status(each) for each in members] == [Status.PENDING] * 2
        assert warned(running) == [True]


def test_one_large_session_ends_rather_than_two_small_ones() -> None:
    host = make_host(group=make_group(fgpu_per_gpu=1), gpus=2, cpu=64)
    other = make_host(group=host.group, gpus=1, cpu=64)
    small = [victim(other, 500, hours=0.1) for _ in range(2)]
    large = [victim(host, hours=9), run_session(host=host, fgpu=1000)]
    waits(host)
    passes.run_pass()
    assert warned(*small, *large) == [False, False, True, False]


@pytest.mark.parametrize(
    ("what", "changes"),
    [
        ("it would not fit all the same", {"fgpu": 2000}),
        ("it is preemptible itself", {"is_preemptible": True}),
        ("its owner's limit forbids it", {"owner": 0}),
    ],
)
def test_nobody_ends_for_nothing(host: Host, what: str, changes: dict[str, Any]) -> None:
    running = victim(host)
    run_session(host=host, fgpu=1000)
    if "owner" in changes:
        changes = {"owner": make_user(policy=make_policy(fgpu=0))}
    waiting = waits(host, **changes)
    for _ in range(2):
        passes.run_pass()
    assert (warned(running), status(waiting)) == ([False], Status.PENDING), what


def test_nobody_ends_where_something_ends_as_soon_by_itself(host: Host) -> None:
    running = victim(host)
    ending = run_session(host=host, fgpu=1000, time_limit=HOUR)
    Session.objects.filter(pk=ending.pk).update(started_at=timezone.now() - HOUR + timedelta(seconds=30))
    waits(host)
    for _ in range(2):
        passes.run_pass()
    assert warned(running) == [False]


def two_warned(host: Host) -> tuple[Session, Session, Session]:
    """Return two sessions that are warned for the third, which waits."""
    one, two, waiting = victim(host, hours=1), victim(host, hours=2), waits(host, fgpu=2000)
    passes.run_pass()
    assert warned(one, two) == [True, True]
    return one, two, waiting


def test_those_not_needed_any_more_are_spared(host: Host) -> None:
    one, two, waiting = two_warned(host)
    services.terminate(waiting, actor=waiting.owner)
    passes.run_pass()
    assert warned(one, two) == [False, False]
    assert [status(each) for each in (one, two)] == [Status.RUNNING] * 2


def test_a_free_host_elsewhere_spares_them(host: Host) -> None:
    one, two, waiting = two_warned(host)
    make_host(group=host.group, gpus=2, cpu=64)
    passes.run_pass()
    assert status(waiting) == Status.SCHEDULED
    passes.run_pass()
    assert warned(one, two) == [False, False]


def test_nobody_else_takes_what_a_victim_leaves_early(host: Host) -> None:
    one, two, waiting = two_warned(host)
    services.terminate(one, actor=one.owner)
    stop(one)
    other = waits(host, priority=50)
    for _ in range(2):
        passes.run_pass()
    assert (status(other), status(waiting)) == (Status.PENDING, Status.PENDING)
    services.terminate(two, actor=two.owner)
    stop(two)
    passes.run_pass()
    assert status(waiting) == Status.SCHEDULED


@pytest.mark.parametrize("dies_after", ["warning", "end"])
def test_a_scheduler_that_dies_goes_on_where_it_was(host: Host, dies_after: str) -> None:
    grace(host.group, NO_GRACE)
    one, two, waiting = two_warned(host)
    if dies_after == "end":
        passes.run_pass()
        assert [status(each) for each in (one, two)] == [Status.TERMINATING] * 2
        stop(one)
    passes.caches.clear()
    other = waits(host, priority=50)
    passes.run_pass()
    for each in (one, two):
        stop(each)
    passes.run_pass()
    assert (status(waiting), status(other)) == (Status.SCHEDULED, Status.PENDING)


def test_several_that_wait_are_helped_at_once(host: Host) -> None:
    running = [victim(host, 500) for _ in range(4)]
    owner = make_user()
    waiting = [waits(host, 500, owner=owner) for _ in range(3)]
    for _ in range(2):
        passes.run_pass()
    assert sum(warned(*running)) == 3
    claims = [Session.objects.get(pk=session.pk).claim for session in waiting]
    assert all(claims)


def test_a_victim_that_moves_on_meanwhile_changes_nothing(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    running, waiting = victim(host, 2000), waits(host)
    find = SchedulerState.find_preemption

    def then_it_ends(*arguments: Any) -> Any:
        found = find(*arguments)
        services.terminate(running, actor=User.objects.get(pk=running.owner_id))
        return found

    monkeypatch.setattr(SchedulerState, "find_preemption", then_it_ends)
    passes.run_pass()
    assert (status(running), Session.objects.get(pk=waiting.pk).claim) == (Status.TERMINATING, None)


def test_a_preemptible_session_starts_after_those_it_would_end_for(host: Host) -> None:
    run_session(host=host, fgpu=1000)
    older, younger = waits(host, is_preemptible=True), waits(host)
    passes.run_pass()
    assert (status(older), status(younger)) == (Status.PENDING, Status.SCHEDULED)


def test_a_preemptible_session_fills_no_gap_in_vain(host: Host) -> None:
    running, large = victim(host), waits(host, 2000)
    small = waits(host, is_preemptible=True)
    for _ in range(2):
        passes.run_pass()
        assert (status(small), status(large), warned(running)) == (Status.PENDING, Status.PENDING, [True])


def test_a_preemptible_session_fills_a_gap_that_helps_nobody(host: Host) -> None:
    run_session(host=host, fgpu=1000)
    waits(host, 2000)
    small = waits(host, is_preemptible=True)
    passes.run_pass()
    assert status(small) == Status.SCHEDULED


@pytest.mark.django_db(transaction=True)
def test_clusters_over_hosts_are_searched_for_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preemption_search, "SEARCH_SECONDS", 1e-9)  # one in each pass
    group = make_group(fgpu_per_gpu=1)
    hosts = [make_host(group=group, gpus=1, cpu=64) for _ in range(4)]
    old = [victim(host) for host in hosts[:2]]
    for host in hosts[2:]:
        run_session(host=host, fgpu=1000)
    in_vain = [waiting_cluster(*hosts, size=size)[0] for size in (4, 3)]
    helped, *_ = waiting_cluster(*hosts, size=2)
    found = []
    for _ in range(6):
        passes.run_pass()
        found.append(warned(*old))
    assert found[:2] == [[False, False]] * 2
    assert found[-1] == [True, True]
    assert {Session.objects.get(pk=each.pk).preempted_for for each in old} == {helped.pk}
    assert {Session.objects.get(pk=each.pk).claim for each in in_vain} == {None}
