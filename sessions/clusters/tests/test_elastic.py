"""Elastic members come and go; the others of their cluster go on, and end, return and start without regard to them."""

from datetime import timedelta
from typing import Any

import pytest

from resources import clock
from resources.models import Host, HostStatus
from scheduler.cycle import passes
from sessions import sweeps
from sessions.clusters import settling
from sessions.launching import services
from sessions.launching.requests import ClusterRequest
from sessions.lifecycle import LIVE, Reason, Status
from sessions.models import Cluster, ClusterMode, Session
from sessions.parking import services as parking
from sessions.requeueing import cluster_restarts, preemption
from sessions.requeueing import requests as requeueing
from sessions.resizing import services as resizing
from sessions.resizing.sizes import SessionSize
from sessions.tests.launch_requests import make_launch_request
from tests.factories import make_host, make_user

pytestmark = pytest.mark.django_db
RUNNING, PENDING = Status.RUNNING, Status.PENDING


@pytest.fixture
def host() -> Host:
    return make_host(gpus=4)


def submit(host: Host, size: int = 2, max_size: int = 4, **overrides: Any) -> Session:
    options = {name: overrides.pop(name) for name in ("runs_on_all", "max_restarts", "mode") if name in overrides}
    request = make_launch_request(host, cluster=ClusterRequest(size=size, max_size=max_size, **options), **overrides)
    return services.submit(make_user(), request)[0]


def start_placed(head: Session) -> None:
    for member in members(head):
        if member.status == Status.SCHEDULED:
            member.move_to(Status.PREPARING, Reason.CLAIMED)
            member.move_to(Status.RUNNING, Reason.STARTED)


def grow(head: Session) -> None:
    """Let the cluster start, or grow by one member."""
    settling.settle_all()
    passes.run_pass()
    start_placed(head)
    settling.settle_all()


def grown(host: Host, **overrides: Any) -> Session:
    """Return the first of four members that run, two of them elastic."""
    head = submit(host, **overrides)
    for _ in range(3):
        grow(head)
    assert statuses(head) == [RUNNING] * 4
    return head


def members(head: Session) -> list[Session]:
    found = Session.objects.filter(cluster=head.pk).order_by("rank")
    return list(found.select_related("host", "image", "cluster", "owner__policy", "project__policy"))


def statuses(head: Session) -> list[str]:
    return [member.status for member in members(head)]


def whole(head: Session) -> str:
    derived = Session.objects.with_members().get(pk=head.pk).whole_status
    assert Session.objects.mains_in([derived]).filter(pk=head.pk).exists() or derived not in LIVE
    return derived


def stop(head: Session) -> None:
    """End each member whose container is being stopped, as its host does."""
    for member in members(head):
        if member.status == Status.TERMINATING:
            preemption.conclude(member)


def test_it_starts_with_the_least_and_grows_one_by_one(host: Host) -> None:
    head = submit(host)
    assert passes.run_pass() == 2
    start_placed(head)
    assert passes.run_pass() == 0, "it has not started as a whole"
    settling.settle_all()
    assert whole(head) == RUNNING
    for running in (3, 4):
        assert passes.run_pass() == 1
        assert whole(head) == RUNNING, "also while one starts"
        start_placed(head)
        assert statuses(head) == [RUNNING] * running + [PENDING] * (4 - running)
    assert Cluster.objects.get().host_addresses == ["10.0.0.1"] * 4
    assert not settling.unsettled().exists()
    assert len({member.ends_at for member in members(head)}) == 1


def test_one_member_is_enough_to_begin_with(host: Host) -> None:
    head = submit(host, 1, 3)
    grow(head)
    assert statuses(head) == [RUNNING, PENDING, PENDING]
    grow(head)
    assert statuses(head) == [RUNNING, RUNNING, PENDING]


@pytest.mark.parametrize("size", [1, 2])
def test_elastic_members_wait_while_their_cluster_is_parked(host: Host, size: int) -> None:
    head = submit(host, size)
    for _ in range(4):
        grow(head)
    preemption.return_elastic(members(head)[3:], "")
    stop(head)
    parking.park(members(head)[0], actor=head.owner)
    assert statuses(head) == [Status.TERMINATING] * size + [RUNNING] * (3 - size) + [PENDING]
    assert passes.run_pass() == 0, "none comes while the others are stopped"
    settling.settle_all()
    assert statuses(head) == [Status.TERMINATING] * 3 + [PENDING]
    for member in members(head)[:size]:
        member.move_to(Status.PARKED, Reason.PARKED)
    settling.settle_all()
    assert Cluster.objects.get().network, "one is still connected to it"
    for member in members(head)[size:3]:
        preemption.conclude(member)
    settling.settle_all()
    assert statuses(head) == [Status.PARKED] * size + [PENDING] * (4 - size)
    assert members(head)[3].started_at is None
    assert (whole(head), Cluster.objects.get().network) == (Status.PARKED, None)
    assert not settling.unsettled().exists()
    assert passes.run_pass() == 0
    parking.resume(members(head)[0], actor=head.owner)
    for _ in range(4):
        grow(head)
    assert statuses(head) == [RUNNING] * 4


def test_one_that_is_lost_only_shrinks_it(host: Host) -> None:
    head = grown(host)
    lost = members(head)[3]
    cluster_restarts.fail(lost, Reason.CONTAINER_LOST, "Gone.")
    settling.settle_all()
    assert statuses(head) == [RUNNING] * 3 + [PENDING]
    assert Cluster.objects.get().host_addresses == ["10.0.0.1"] * 3 + [""]
    assert not settling.unsettled().exists()
    grow(head)
    assert statuses(head) == [RUNNING] * 4, "its place is taken again"


def test_one_that_fails_or_is_ended_gives_up_its_place(host: Host) -> None:
    head = grown(host, command="train", runs_on_all=True, max_restarts=2)
    _, _, third, last = members(head)
    cluster_restarts.fail(last, Reason.CONTAINER_EXITED, "Exit code 3.")
    services.terminate(third, actor=head.owner)
    stop(head)
    settling.settle_all()
    grow(head)
    assert statuses(head) == [RUNNING, RUNNING, Status.TERMINATED, Status.ERROR]
    assert whole(head) == RUNNING
    assert Cluster.objects.get().restarts == 0


def test_a_lost_host_and_a_drained_one_only_shrink_it(host: Host) -> None:
    other = make_host(group=host.group, gpus=4)
    head = submit(host, mode=ClusterMode.SPREAD, max_size=3)
    grow(head)
    third = make_host(group=host.group, gpus=4)
    grow(head)
    assert members(head)[2].host == third
    Host.objects.filter(pk=third.pk).update(is_cordoned=True, drain_by=clock.now())
    sweeps.end_on_drained_hosts()
    assert statuses(head) == [RUNNING, RUNNING, Status.TERMINATING]
    stop(head)
    Host.objects.filter(pk=third.pk).update(is_cordoned=False, drain_by=None)
    grow(head)
    assert statuses(head) == [RUNNING] * 3
    host.group.host_loss_grace = timedelta(0)
    host.group.save()
    Host.objects.filter(pk=third.pk).update(status=HostStatus.LOST, lost_at=clock.now() - timedelta(minutes=1))
    sweeps.end_on_lost_hosts()
    settling.settle_all()
    assert statuses(head) == [RUNNING, RUNNING, PENDING]
    assert other.pk in {member.host_id for member in members(head)}


def test_the_end_of_one_of_the_least_ends_all(host: Host) -> None:
    head = submit(host)
    grow(head)
    grow(head)
    services.terminate(members(head)[1], actor=head.owner)
    settling.settle_all()
    assert statuses(head) == [Status.TERMINATING] * 3 + [Status.CANCELLED]
    stop(head)
    settling.settle_all()
    assert Cluster.objects.get().ended_at is not None


def test_it_begins_again_with_the_least(host: Host) -> None:
    head = grown(host, command="train", runs_on_all=True)
    requeueing.requeue(head, actor=head.owner)
    settling.settle_all()
    assert passes.run_pass() == 0
    stop(head)
    settling.settle_all()
    assert statuses(head) == [PENDING] * 4
    assert passes.run_pass() == 2
    assert statuses(head) == [Status.SCHEDULED] * 2 + [PENDING] * 2


def test_a_resize_is_of_those_that_run_and_that_come(host: Host) -> None:
    head = submit(host)
    grow(head)
    resizing.resize(head, SessionSize(cpu=2, memory=head.memory, fgpu=0), actor=head.owner)
    assert [(member.cpu, bool(member.resize)) for member in members(head)] == [(2, True)] * 2 + [(2, False)] * 2


def test_once_one_has_succeeded_it_grows_no_more(host: Host) -> None:
    head = submit(host, command="work", runs_on_all=True)
    grow(head)
    grow(head)
    first, second, third, _ = members(head)
    for member in (first, second):
        member.move_to(Status.TERMINATED, Reason.CONTAINER_EXITED, fields={"exit_code": 0})
    settling.settle_all()
    assert statuses(head) == [Status.TERMINATED] * 2 + [RUNNING, Status.CANCELLED]
    assert whole(head) == RUNNING, "until the last has ended"
    third.move_to(Status.TERMINATED, Reason.CONTAINER_EXITED, fields={"exit_code": 0})
    settling.settle_all()
    assert Cluster.objects.get().ended_at is not None
    assert whole(head) == Status.TERMINATED
