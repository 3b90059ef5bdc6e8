"""Members end and return to the queue together, whatever moved first."""

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
from sessions.lifecycle import Reason, Status
from sessions.models import Cluster, Lease, Session
from sessions.requeueing import cluster_restarts, host_faults, preemption
from sessions.tests.launch_requests import make_launch_request
from tests.factories import make_host, make_user

pytestmark = pytest.mark.django_db
ENDED = [Status.TERMINATED] * 3


@pytest.fixture
def host() -> Host:
    return make_host(gpus=3)


def running(host: Host, **overrides: Any) -> list[Session]:
    """Return the members of a cluster of three, all RUNNING."""
    options = {name: overrides.pop(name) for name in ("runs_on_all", "max_restarts") if name in overrides}
    request = make_launch_request(host, cluster=ClusterRequest(size=3, **options), **overrides)
    (head,) = services.submit(make_user(), request)
    start(head)
    return members(head)


def start(head: Session) -> None:
    passes.run_pass()
    for member in members(head):
        member.move_to(Status.PREPARING, Reason.CLAIMED)
        member.move_to(Status.RUNNING, Reason.STARTED)


def members(head: Session) -> list[Session]:
    found = Session.objects.filter(cluster=head.pk).order_by("rank")
    return list(found.select_related("host", "image", "owner__policy", "project__policy"))


def statuses(head: Session) -> list[str]:
    return [member.status for member in members(head)]


def stopped(head: Session) -> None:
    """End each member whose container is being stopped, as its host does."""
    for member in members(head):
        if member.status == Status.TERMINATING:
            preemption.conclude(member)


def test_the_end_of_one_ends_all_and_forgets_the_keys(host: Host) -> None:
    head, *_ = running(host)
    services.terminate(head, actor=head.owner)
    settling.settle_all()
    assert statuses(head) == [Status.TERMINATING] * 3
    stopped(head)
    settling.settle_all()
    assert statuses(head) == ENDED
    sub = members(head)[1]
    assert (sub.reason, sub.detail) == (
        Reason.CLUSTER_ENDED,
        f"main1 of its cluster ended: Ended by {head.owner}.",
    )
    cluster = Cluster.objects.get()
    assert cluster.ended_at is not None
    assert (cluster.private_key, cluster.public_key, cluster.network, cluster.host_addresses) == ("", "", None, [])
    assert not Lease.objects.exists()


def test_a_failed_member_is_named_to_the_others(host: Host) -> None:
    head, _, last = running(host)
    last.move_to(Status.ERROR, Reason.OUT_OF_MEMORY, "It needed more memory.")
    settling.settle_all()
    settling.settle_all()
    stopped(head)
    assert [member.detail for member in members(head)][:2] == ["sub2 of its cluster ended: It needed more memory."] * 2


def test_a_waiting_cluster_is_cancelled_whole(host: Host) -> None:
    (head,) = services.submit(make_user(), make_launch_request(host, cluster=ClusterRequest(size=3)))
    services.terminate(members(head)[2], actor=head.owner)
    settling.settle_all()
    assert statuses(head) == [Status.CANCELLED] * 3


def test_members_with_a_command_succeed_each_at_its_time(host: Host) -> None:
    head, sub, last = running(host, command="train", runs_on_all=True)
    sub.move_to(Status.TERMINATED, Reason.CONTAINER_EXITED, fields={"exit_code": 0})
    settling.settle_all()
    assert statuses(head) == [Status.RUNNING, Status.TERMINATED, Status.RUNNING]
    last.move_to(Status.ERROR, Reason.CONTAINER_EXITED, "Exit code 3.", fields={"exit_code": 3})
    settling.settle_all()
    assert statuses(head) == [Status.TERMINATING, Status.TERMINATED, Status.ERROR]


def test_the_end_of_the_command_on_main1_ends_the_others(host: Host) -> None:
    head, *_ = running(host, command="train")
    head.move_to(Status.TERMINATED, Reason.CONTAINER_EXITED, fields={"exit_code": 0})
    settling.settle_all()
    stopped(head)
    assert statuses(head) == ENDED
    assert all(member.has_succeeded for member in members(head))


def test_a_failed_start_returns_all_with_their_avoided_hosts(host: Host) -> None:
    make_host(group=host.group, gpus=3)
    (head,) = services.submit(make_user(), make_launch_request(host, cluster=ClusterRequest(size=3)))
    passes.run_pass()
    first, second, third = members(head)
    for member in (first, second):
        member.move_to(Status.PREPARING, Reason.CLAIMED)
    first.move_to(Status.RUNNING, Reason.STARTED)
    failed_on = second.host_id
    host_faults.note_failed_start(second, Reason.START_FAILED, "No.")
    assert passes.run_pass() == 0, "one alone is not placed"
    settling.settle_all()
    assert statuses(head) == [Status.TERMINATING, Status.PENDING, Status.PENDING]
    stopped(head)
    settling.settle_all()
    assert statuses(head) == [Status.PENDING] * 3
    known = [(member.start_failures, failed_on in member.avoided_hosts) for member in members(head)]
    assert known == [(1, True)] * 3
    assert passes.run_pass() == 3
    assert failed_on not in {member.host_id for member in members(head)}
    assert third.start_failures == 0


def test_one_that_returns_while_another_has_ended_ends(host: Host) -> None:
    head, sub, last = running(host)
    sub.move_to(Status.TERMINATING, Reason.CLUSTER_RETURNED)
    last.move_to(Status.ERROR, Reason.CONTAINER_LOST, "Gone.")
    settling.settle_all()
    stopped(head)
    settling.settle_all()
    assert statuses(head) == [Status.TERMINATED, Status.TERMINATED, Status.ERROR]


def test_settled_clusters_are_left_alone(host: Host) -> None:
    head, *_ = running(host)
    services.submit(make_user(), make_launch_request(host, cluster=ClusterRequest(size=3)))
    settling.settle_all()
    assert not settling.unsettled().exists()
    services.terminate(head, actor=head.owner)
    assert [cluster.pk for cluster in settling.unsettled()] == [head.pk]


def fail(member: Session, reason: Reason = Reason.CONTAINER_EXITED) -> None:
    cluster_restarts.fail(Session.objects.select_related("cluster", "host").get(pk=member.pk), reason, "Exit code 3.")


def test_a_failed_cluster_starts_again_as_often_as_asked_for(host: Host) -> None:
    head, sub, _ = running(host, command="train", max_restarts=1)
    fail(sub)
    settling.settle_all()
    assert statuses(head) == [Status.TERMINATING, Status.PENDING, Status.TERMINATING]
    assert members(head)[0].detail == "sub1 of its cluster returned to the queue: Exit code 3."
    stopped(head)
    settling.settle_all()
    settling.settle_all()
    assert statuses(head) == [Status.PENDING] * 3
    assert Cluster.objects.get().restarts == 1
    start(head)
    fail(members(head)[0])
    settling.settle_all()
    assert statuses(head) == [Status.ERROR, Status.TERMINATING, Status.TERMINATING]


def test_members_that_fail_together_are_one_restart(host: Host) -> None:
    head, *subs = running(host, max_restarts=3)
    for member in subs:
        fail(member, Reason.OUT_OF_MEMORY)
    settling.settle_all()
    stopped(head)
    settling.settle_all()
    assert statuses(head) == [Status.PENDING] * 3
    assert Cluster.objects.get().restarts == 1


def test_what_another_start_cannot_help_ends_the_cluster(host: Host) -> None:
    head, *_ = running(host, max_restarts=3)
    fail(head, Reason.ENFORCEMENT_FAILED)
    assert statuses(head)[0] == Status.ERROR


def test_a_lost_host_has_the_cluster_start_again(host: Host) -> None:
    head, *_ = running(host, max_restarts=1)
    group = host.group
    group.host_loss_grace = timedelta(0)
    group.save()
    Host.objects.update(status=HostStatus.LOST, lost_at=clock.now() - timedelta(minutes=1))
    sweeps.end_on_lost_hosts()
    settling.settle_all()
    assert statuses(head) == [Status.PENDING] * 3
