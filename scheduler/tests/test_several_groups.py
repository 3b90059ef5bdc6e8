"""Sessions that may start in several resource groups, whose passes know nothing of each other."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from resources.amounts.units import GIB
from resources.models import Host, ResourceGroup
from scheduler.advice.estimate import estimate
from scheduler.advice.own_sessions import advice_on
from scheduler.advice.place import place_of
from scheduler.core.types import Placement
from scheduler.cycle import passes, shared_limits
from scheduler.state.scheduler_state import SchedulerState
from sessions.errors import RejectedError
from sessions.launching import services
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from sessions.resizing.services import resize
from sessions.resizing.sizes import SessionSize
from sessions.tests.launch_requests import make_launch_request
from tests.factories import make_gpu, make_group, make_host, make_policy, make_session, make_user, run_session
from tests.wait import SECONDS, until

pytestmark = pytest.mark.django_db(transaction=True)
HOUR = timedelta(hours=1)


@pytest.fixture
def hosts() -> list[Host]:
    """Two hosts of one core each, in groups of their own."""
    return [make_host(cpu=1), make_host(cpu=1)]


def waiting_for(hosts: Sequence[Host], **fields: Any) -> Session:
    """Return a session that may start on any of these hosts, the first preferred."""
    choices = [host.group_id for host in hosts]
    return make_session(resource_group=hosts[0].group, group_choices=choices, **fields)


def pass_over(*hosts: Host) -> list[int]:
    """Make a pass over the group of each host; return the numbers of sessions placed."""
    return [passes.run_group_pass(host.group_id) for host in hosts]


def test_it_starts_in_the_group_that_it_prefers(hosts: list[Host]) -> None:
    session = waiting_for(hosts)
    assert pass_over(hosts[1], hosts[0]) == [0, 1]
    session.refresh_from_db()
    assert (session.host, session.resource_group) == (hosts[0], hosts[0].group)


def test_it_starts_where_it_can_first(hosts: list[Host]) -> None:
    run_session(host=hosts[0])
    session = waiting_for(hosts)
    assert pass_over(hosts[1], hosts[0], hosts[1]) == [0, 0, 1]
    session.refresh_from_db()
    assert (session.host, session.resource_group, session.group_waits) == (hosts[1], hosts[1].group, {})
    assert Session.objects.waiting_in(hosts[0].group_id).count() == 0


def test_a_preferred_group_without_passes_is_not_waited_for_long(hosts: list[Host]) -> None:
    session = waiting_for(hosts, created_at=timezone.now() - timedelta(minutes=1))
    assert pass_over(hosts[1]) == [1]
    session.refresh_from_db()
    assert session.host == hosts[1]


def test_two_passes_at_once_start_it_once(hosts: list[Host], monkeypatch: pytest.MonkeyPatch) -> None:
    session = waiting_for(hosts, owner=make_user(policy=make_policy(max_sessions=1)))
    Session.objects.update(created_at=timezone.now() - HOUR)
    hold, both_have_planned = shared_limits.hold, threading.Barrier(2, timeout=SECONDS)
    first_time = threading.local()

    def hold_together(state: SchedulerState, placements: Sequence[Placement]) -> None:
        if not getattr(first_time, "is_over", False):
            first_time.is_over = True
            both_have_planned.wait()
        hold(state, placements)

    monkeypatch.setattr(shared_limits, "hold", hold_together)

    def run(host: Host) -> int:
        try:
            return passes.run_group_pass(host.group_id)
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as threads:
        assert sorted(threads.map(run, hosts)) == [0, 1]
    assert Session.objects.filter(status=Status.SCHEDULED).count() == 1
    session.refresh_from_db()
    assert session.attempt == 1
    assert session.host is not None
    assert session.resource_group == session.host.group
    assert pass_over(*hosts) == [0, 0]


def test_it_asks_for_less_and_starts_in_another_group(hosts: list[Host]) -> None:
    run_session(host=hosts[0])
    session = waiting_for(hosts, cpu=2)
    assert pass_over(*hosts) == [0, 0]
    (smaller,) = advice_on([session])[session.pk].smaller
    assert (smaller.cpu, smaller.memory_bytes, smaller.starts) == (1, session.memory, "now")
    size = SessionSize(cpu=smaller.cpu, memory=smaller.memory_bytes, fgpu=smaller.fgpu_milli)
    resize(session, size, actor=session.owner)
    assert pass_over(*hosts) == [0, 1]
    session.refresh_from_db()
    assert (session.host, session.cpu, session.lease.cpu) == (hosts[1], 1, 1)


def test_asking_for_less_waits_for_another_groups_pass(hosts: list[Host], monkeypatch: pytest.MonkeyPatch) -> None:
    run_session(host=hosts[0])
    session = waiting_for(hosts, memory=2 * GIB)
    assert pass_over(hosts[0]) == [0]
    session.status = Status.RUNNING  # as it was read before it was requeued
    hold, has_planned, may_write = shared_limits.hold, threading.Event(), threading.Event()

    def hold_later(state: SchedulerState, placements: Sequence[Placement]) -> None:
        has_planned.set()
        assert may_write.wait(SECONDS)
        hold(state, placements)

    monkeypatch.setattr(shared_limits, "hold", hold_later)

    def run(act: Callable[..., object], *arguments: object, **named: object) -> object:
        try:
            return act(*arguments, **named)
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as threads:
        placing = threads.submit(run, passes.run_group_pass, hosts[1].group_id)
        assert has_planned.wait(SECONDS)
        less = threads.submit(run, resize, session, SessionSize(cpu=1, memory=GIB, fgpu=0), actor=session.owner)
        try:
            until(lambda: less.done() or waiting_for_locks())
            assert not less.done()
        finally:
            may_write.set()
        assert placing.result() == 1
        with pytest.raises(RejectedError, match="Only a running session"):
            less.result()
    session.refresh_from_db()
    assert (session.status, session.host) == (Status.SCHEDULED, hosts[1])
    assert session.lease.memory == session.memory == 2 * GIB


def waiting_for_locks() -> int:
    """Return how many transactions wait for an advisory lock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
        return int(cursor.fetchall()[0][0])


def test_it_has_the_earliest_start_of_all_groups(hosts: list[Host]) -> None:
    late, _ = (run_session(host=host, time_limit=limit) for host, limit in zip(hosts, (3 * HOUR, HOUR), strict=True))
    session = waiting_for(hosts)
    pass_over(*hosts)
    session.refresh_from_db()
    told = {name: wait["eta"] for name, wait in session.group_waits.items()}
    assert told.keys() == {str(host.group_id) for host in hosts}
    assert session.eta is not None
    assert timezone.now() + HOUR < session.eta < timezone.now() + 2 * HOUR
    services.terminate(late, actor=late.owner)
    pass_over(*hosts)
    session.refresh_from_db()
    assert session.eta < timezone.now() + HOUR  # a stopped session ends within minutes
    Host.objects.filter(pk=hosts[0].pk).update(is_cordoned=True)
    pass_over(*hosts)
    session.refresh_from_db()
    assert (session.reason, session.eta is None) == (Reason.NO_CAPACITY, False)
    assert session.group_waits[str(hosts[0].group_id)]["reason"] == Reason.NO_HOST


def test_its_place_counts_in_each_group(hosts: list[Host]) -> None:
    run_session(host=hosts[0])
    run_session(host=hosts[1])
    ahead = waiting_for(hosts)
    other = make_session(resource_group=hosts[1].group)
    assert [found and found.ahead for found in (place_of(ahead), place_of(other))] == [0, 1]


def test_the_estimate_looks_at_all_groups(hosts: list[Host]) -> None:
    owner = make_user()
    run_session(host=hosts[0], time_limit=3 * HOUR)
    alone = make_launch_request(hosts[0], count=2, cpu=1, other_groups=[])
    later = estimate(owner, alone).advice
    assert [each.starts == "now" for each in later.sessions] == [False, False]
    both = make_launch_request(hosts[0], count=2, cpu=1, other_groups=[hosts[1].group])
    advice = estimate(owner, both).advice
    assert [each.starts == "now" for each in advice.sessions] == [True, False]
    assert [alternative.group_id for alternative in advice.alternatives] == []


def test_a_retry_may_go_to_any_of_its_groups(hosts: list[Host]) -> None:
    session = waiting_for(hosts)
    pass_over(*hosts)
    session.refresh_from_db()
    assert session.host == hosts[0]
    fields = {"host": None, "avoided_hosts": [hosts[0].pk]}
    session.move_to(Status.PREPARING, Reason.CLAIMED)
    session.move_to(Status.PENDING, Reason.HOST_FAULT, fields=fields)
    run_session(host=hosts[0])
    assert pass_over(*hosts) == [0, 1]
    session.refresh_from_db()
    assert (session.host, session.resource_group) == (hosts[1], hosts[1].group)


@pytest.fixture
def mixed() -> ResourceGroup:
    """A group with a host of an A100 of 80 GiB and one of an A10 of 24 GiB; a GPU is 2 fGPU."""
    group = make_group()
    for name, model, memory in (("a", "A10", 24), ("b", "A100", 80)):
        make_gpu(host=make_host(group=group, name=name), name=model, memory=memory * GIB)
    return group


@pytest.mark.parametrize(
    ("demand", "host_name"),
    [
        ({}, "a"),
        ({"gpu_model": "A100"}, "b"),
        ({"gpu_model": "A10"}, "a"),
        ({"min_gpu_memory": 12 * GIB}, "a"),
        ({"min_gpu_memory": 12 * GIB + 1}, "b"),
        ({"min_gpu_memory": 40 * GIB}, "b"),
    ],
)
def test_gpus_are_of_the_model_and_memory_asked_for(
    mixed: ResourceGroup, demand: dict[str, Any], host_name: str
) -> None:
    session = make_session(resource_group=mixed, fgpu=1000, **demand)
    assert passes.run_pass() == 1
    session.refresh_from_db()
    assert session.host is not None
    assert session.host.name == host_name


def test_a_session_says_which_gpus_it_waits_for(mixed: ResourceGroup) -> None:
    model = make_session(resource_group=mixed, fgpu=1000, gpu_model="H100")
    memory = make_session(resource_group=mixed, fgpu=2000, min_gpu_memory=90 * GIB)
    passes.run_pass()
    for session, what in ((model, "GPUs of the model H100"), (memory, "GPUs of 90 GiB or more")):
        session.refresh_from_db()
        assert session.reason == Reason.NO_SUITABLE_HOST
        assert session.detail == f"No ready host of this session's resource group has {what}."
