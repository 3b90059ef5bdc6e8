"""Parking of clusters: all members or none, resumed as a gang, each on the host that has its files."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import User
from resources import clock
from resources.models import Host, HostStatus, ResourceGroup
from scheduler.cycle.passes import run_pass
from sessions.clusters import settling
from sessions.errors import RejectedError
from sessions.idle import enforcement as idle
from sessions.idle_rules import IdleAction, IdleCause, Idleness
from sessions.launching import services
from sessions.lifecycle import Reason, Status
from sessions.models import Cluster, Conversion, IdleNotice, IdleRule, Lease, Session
from sessions.parking import services as parking
from sessions.sweeps import enforce_deadlines
from tests.factories import make_group, make_host, make_policy, make_user, run_session, scheduled_cluster
from tests.web import HTMX, browser_of, text_of

pytestmark = pytest.mark.django_db
ALL_PARKED = [Status.PARKED] * 3


@pytest.fixture
def hosts() -> list[Host]:
    """Two hosts of 16 cores and two GPUs of 2 fGPU each, and a third, of one group."""
    group = make_group(pending_timeout=timedelta(hours=1))
    return [make_host(group=group, gpus=2, cluster_address=f"192.0.2.{number}") for number in range(1, 4)]


def running(*hosts: Host, owner: User | None = None) -> list[Session]:
    """Return a cluster with a member on each of these hosts, by rank."""
    members = scheduled_cluster(*hosts, owner=owner or make_user(), name="train", cpu=4, fgpu=500)
    start(members)
    settling.settle_all()
    return read(members)


def start(members: list[Session]) -> None:
    for member in read(members):
        member.move_to(Status.PREPARING, Reason.CLAIMED)
        member.move_to(Status.RUNNING, Reason.STARTED)


def read(members: list[Session]) -> list[Session]:
    return list(members[0].members.select_related("host", "owner__policy", "project__policy"))


def statuses(members: list[Session]) -> list[str]:
    return [member.status for member in read(members)]


def stopped(members: list[Session]) -> None:
    """Have each host finish what it has been told to stop."""
    for member in read(members):
        if member.is_parking and member.status == Status.TERMINATING:
            member.move_to(Status.PARKED, Reason(member.reason))
    settling.settle_all()


def parked(*hosts: Host) -> list[Session]:
    members = running(*hosts)
    parking.park(members[0], actor=members[0].owner)
    stopped(members)
    return read(members)


def cluster() -> Cluster:
    return Cluster.objects.get()


def test_all_members_are_parked_and_give_their_network_back(hosts: list[Host]) -> None:
    members = running(hosts[0], hosts[1], hosts[0])
    key = cluster().public_key
    parking.park(members[1], actor=members[0].owner)
    assert statuses(members) == [Status.TERMINATING] * 3
    parking.park(members[0], actor=members[0].owner)  # again: nothing
    read(members)[1].move_to(Status.PARKED, Reason.PARKED)
    settling.settle_all()
    assert Session.objects.with_members().get(pk=members[0].pk).whole_status == Status.TERMINATING
    stopped(members)
    assert statuses(members) == ALL_PARKED
    assert Session.objects.with_members().get(pk=members[0].pk).whole_status == Status.PARKED
    assert (Lease.objects.count(), parking.parked_of(members[0].owner).count()) == (0, 3)
    assert (cluster().network, cluster().host_addresses, cluster().started_at) == (None, [], None)
    assert cluster().public_key == key
    assert not settling.unsettled().exists()


def test_a_member_that_cannot_be_parked_keeps_all_from_it(hosts: list[Host]) -> None:
    members = running(hosts[0], hosts[1], hosts[0])
    saving = Conversion.objects.create(session=members[2], host=hosts[0], state="SAVING", reference="mine:1")
    with pytest.raises(RejectedError, match="sub2: It is being saved as an image"):
        parking.park(members[0], actor=members[0].owner)
    saving.delete()
    members[0].owner.policy.max_parked = 2
    members[0].owner.policy.save()
    head = read(members)[0]
    with CaptureQueriesContext(connection) as queries:
        assert "each member is one" in parking.refusal(head)
    assert len(queries) == 4
    assert statuses(members) == [Status.RUNNING] * 3


def test_resumed_members_start_together_each_on_its_host(hosts: list[Host]) -> None:
    members = parked(hosts[1], hosts[0], hosts[1])
    blocker = run_session(host=hosts[0], cpu=14)
    Session.objects.filter(pk=members[1].pk).update(cpu=2)  # as where its resize was refused
    parking.resume(members[2], actor=members[0].owner)
    parking.resume(members[0], actor=members[0].owner)  # again: nothing
    assert run_pass() == 0
    head = read(members)[0]
    assert (head.status, head.reason) == (Status.PENDING, Reason.NO_CAPACITY)
    each = "4 CPU cores, 1 GiB of memory and 0.5 fGPU each"
    assert head.detail.startswith(
        f"Needs 3 members with {each} on the hosts with their files: there is room for 2 now."
    )
    blocker.move_to(Status.ERROR, Reason.CONTAINER_EXITED)
    assert run_pass() == 3
    assert [member.host for member in read(members)] == [hosts[1], hosts[0], hosts[1]]
    assert cluster().host_addresses == ["192.0.2.2", "192.0.2.1", "192.0.2.2"]
    assert cluster().network
    assert set(Lease.objects.values_list("cpu", flat=True)) == {4}
    start(members)
    settling.settle_all()
    assert cluster().started_at
    assert members[0].events.filter(reason=Reason.STARTED, detail="All 3 members run.").count() == 2


def test_members_of_one_host_wait_for_that_host(hosts: list[Host]) -> None:
    members = parked(hosts[2], hosts[2])
    Host.objects.filter(pk=hosts[2].pk).update(is_cordoned=True)
    parking.resume(members[0], actor=members[0].owner)
    assert run_pass() == 0
    assert f"are on host {hosts[2].name}" in read(members)[0].detail
    Host.objects.filter(pk=hosts[2].pk).update(is_cordoned=False)
    assert run_pass() == 2
    assert {member.host for member in read(members)} == {hosts[2]}


def test_a_cluster_on_the_hosts_network_gets_ports_anew(hosts: list[Host]) -> None:
    ResourceGroup.objects.update(cluster_host_network=True)
    members = parked(*hosts)
    assert cluster().first_port is None
    parking.resume(members[0], actor=members[0].owner)
    assert run_pass() == 3
    assert cluster().first_port
    assert all(member.has_host_network for member in members[0].members.select_related("cluster"))


def test_a_host_that_is_lost_meanwhile_parks_its_member(hosts: list[Host]) -> None:
    members = running(*hosts)
    parking.park(members[0], actor=members[0].owner)
    long_ago = timezone.now() - timedelta(days=1)
    Host.objects.filter(pk=hosts[2].pk).update(status=HostStatus.LOST, lost_at=long_ago)
    enforce_deadlines()
    assert statuses(members) == [Status.TERMINATING, Status.TERMINATING, Status.PARKED]
    stopped(members)
    assert statuses(members) == ALL_PARKED
    assert cluster().network is None


def test_none_is_resumed_where_one_host_is_lost(hosts: list[Host]) -> None:
    members = parked(*hosts)
    Host.objects.filter(pk=hosts[1].pk).update(status=HostStatus.LOST)
    with pytest.raises(RejectedError, match=r"sub1: Its host .* is unreachable"):
        parking.resume(members[0], actor=members[0].owner)
    Host.objects.update(status=HostStatus.READY)
    members[0].owner.policy = make_policy(cpu=11)
    members[0].owner.save()
    with pytest.raises(RejectedError, match="less by now"):
        parking.resume(members[0], actor=members[0].owner)
    members[0].owner.policy = make_policy(max_pending=2)
    members[0].owner.save()
    with pytest.raises(RejectedError, match="3 more are too many"):
        parking.resume(members[0], actor=members[0].owner)
    assert statuses(members) == ALL_PARKED


def test_where_one_cannot_be_resumed_all_are_parked_again(hosts: list[Host]) -> None:
    members = parked(*hosts)
    parking.resume(members[0], actor=members[0].owner)
    run_pass()
    main, failed, _ = read(members)
    for member, status in ((main, Status.PREPARING), (main, Status.RUNNING), (failed, Status.PREPARING)):
        member.move_to(status, Reason.STARTED)
    parking.return_parked(failed, Reason.RESUME_FAILED, "The engine refused it.")
    settling.settle_all()
    assert statuses(members) == [Status.TERMINATING, Status.PARKED, Status.PARKED]
    stopped(members)
    assert statuses(members) == ALL_PARKED
    last = read(members)[2]
    assert last.reason == Reason.RESUME_FAILED
    assert last.detail == "sub1 of its cluster was parked: The engine refused it."
    assert cluster().network is None


def test_a_wait_given_up_or_too_long_parks_all(hosts: list[Host]) -> None:
    members = parked(*hosts)
    Host.objects.update(is_cordoned=True)
    parking.resume(members[0], actor=members[0].owner)
    parking.park(read(members)[1], actor=members[0].owner)
    assert statuses(members) == ALL_PARKED
    parking.resume(members[0], actor=members[0].owner)
    long_ago = timezone.now() - timedelta(days=1)
    Session.objects.filter(status=Status.PENDING).update(status_at=long_ago, not_before=long_ago)
    enforce_deadlines()
    settling.settle_all()
    assert statuses(members) == ALL_PARKED


def test_the_end_of_one_parked_member_ends_all(hosts: list[Host]) -> None:
    members = running(*hosts)
    parking.park(members[0], actor=members[0].owner)
    read(members)[0].move_to(Status.PARKED, Reason.PARKED)
    services.terminate(read(members)[1], actor=members[0].owner)
    read(members)[1].move_to(Status.TERMINATED, Reason.USER_REQUEST)
    stopped(members)
    settling.settle_all()
    assert statuses(members) == [Status.TERMINATED] * 3


def test_an_idle_cluster_is_parked_whole_by_its_rule(hosts: list[Host]) -> None:
    members = running(*hosts)
    rule = IdleRule.objects.create(name="unused", idle_timeout=timedelta(hours=1), action=IdleAction.PARK.value)
    now = clock.now()
    assert idle.will_be_parked(members[0], rule)
    notice = IdleNotice.objects.create(session=members[0], rule=rule, cause="", warned_at=now, ends_at=now)
    Session.objects.update(last_activity_at=now - timedelta(hours=2))
    idle._end(notice, Idleness(IdleCause.UNUSED, timedelta(hours=1)), now)
    assert {(member.status, member.is_parking, member.reason) for member in read(members)} == {
        (Status.TERMINATING, True, Reason.IDLE)
    }


def test_pages_park_and_resume_the_whole(hosts: list[Host]) -> None:
    members = running(*hosts)
    browser, path = browser_of(members[0].owner), f"/sessions/{members[0].pk}/"
    assert f"{path}park/" in text_of(browser, path)
    assert f"{path}park/" not in text_of(browser, f"/sessions/{members[1].pk}/")
    assert "All members are parked." in text_of(browser, f"{path}park/", **HTMX)
    assert browser.post(f"{path}park/", headers=HTMX).status_code == 204
    assert f"{path}resume/" not in text_of(browser, path)
    stopped(members)
    assert f"{path}resume/" in text_of(browser, path)
    assert "have room for all of them" in text_of(browser, f"{path}resume/", **HTMX)
    assert 'id="resume-' in text_of(browser, "/sessions/?section=parked")
    assert browser.post(f"{path}resume/", headers=HTMX).status_code == 204
    assert statuses(members) == [Status.PENDING] * 3
    assert f"{path}park/" in text_of(browser, path)
