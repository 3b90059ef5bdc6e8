"""Live resize of a cluster: all members are asked for at once, or none; each host applies its own."""

import json
from typing import Any

import pytest
from django.db import connection

from accounts.models import User
from resources.amounts.units import GIB
from resources.models import Host
from sessions.clusters import settling
from sessions.errors import GENERAL, RejectedError
from sessions.lifecycle import Reason, Status
from sessions.models import Cluster, GpuShare, Lease, Session
from sessions.requeueing import preemption
from sessions.resizing import services as resizing
from sessions.resizing.sizes import SessionSize, StoredResize
from tests.api import client_of
from tests.factories import make_host, make_policy, make_session, make_user, run_cluster, run_session
from tests.invariants import broken_amounts
from tests.web import HTMX, browser_of, text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner() -> User:
    return make_user()


@pytest.fixture
def members(owner: User) -> list[Session]:
    """Two members on a host of 8 cores and two GPUs, and one on another of 16 cores."""
    small = make_host(gpus=2, cpu=8, memory=16 * GIB)
    hosts = [small, make_host(gpus=1, group=small.group)]
    return run_cluster(owner=owner, hosts=hosts, name="train", cpu=2, memory=2 * GIB, fgpu=500)


def resize(session: Session, **changes: int) -> None:
    target = {"cpu": session.cpu, "memory": session.memory, "fgpu": session.fgpu} | changes
    resizing.resize(session, SessionSize(**target), actor=session.owner)


def refused(session: Session, **changes: int) -> dict[str, str]:
    with pytest.raises(RejectedError) as caught:
        resize(session, **changes)
    assert not Session.objects.filter(resize__isnull=False).exists()
    return caught.value.errors


def held() -> list[tuple[int, int, int]]:
    """Return the amounts of each lease by rank, as the commit would check them."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED")
    assert broken_amounts() == []
    leases = Lease.objects.filter(session__cluster__isnull=False).order_by("session__rank")
    shares = dict(GpuShare.objects.values_list("lease", "milli"))
    return [(lease.cpu, lease.memory, shares.get(lease.pk, 0)) for lease in leases]


def finish(session: Session, problem: str = "") -> None:
    session.refresh_from_db()
    stored = StoredResize.of(session)
    assert stored
    assert resizing.finish(session.pk, stored.id, problem)


def test_all_members_hold_both_sizes_until_their_hosts_applied(members: list[Session]) -> None:
    resize(members[1], cpu=4, memory=GIB, fgpu=1000)
    assert held() == [(4, 2 * GIB, 1000)] * 3
    resize(members[0], cpu=4, memory=GIB, fgpu=1000)  # again: nothing
    for member in members:
        assert member.events.filter(reason=Reason.RESIZING, actor=member.owner).count() == 1
        finish(member)
    assert held() == [(4, GIB, 1000)] * 3


def test_what_one_host_cannot_give_no_member_gets(members: list[Session]) -> None:
    assert refused(members[2], cpu=5)["cpu"] == "Its hosts have room for at most 4 CPU cores in each member now."
    assert "at most 8 GiB" in refused(members[2], memory=9 * GIB)["memory"]
    run_session(host=members[1].host, cpu=13, fgpu=1200)
    assert "at most 3 CPU cores" in refused(members[0], cpu=4)["cpu"]
    assert "at most 0.8 fGPU" in refused(members[0], fgpu=1000)["fgpu"]
    resize(members[0], cpu=3, memory=8 * GIB, fgpu=800)
    assert held() == [(3, 8 * GIB, 800)] * 3


def test_members_on_one_gpu_share_what_is_free() -> None:
    members = run_cluster(2, hosts=[make_host(gpus=1)], fgpu=500)
    assert resizing.most_now(resizing.members_of(members[1]), members[0].owner).fgpu == 1000
    assert "at most 1 fGPU" in refused(members[0], fgpu=1010)["fgpu"]


def test_limits_count_what_all_members_get_more() -> None:
    owner = make_user(policy=make_policy(cpu=8, fgpu=2000))
    members = run_cluster(owner=owner, hosts=[make_host(gpus=3)], cpu=2, fgpu=500)
    assert "at most 8 CPU cores in all" in refused(members[0], cpu=3)["cpu"]
    most = resizing.most_now(resizing.members_of(members[0]), owner)
    assert (most.cpu, most.fgpu) == (2, 666)
    owner.policy.cpu = 9
    owner.policy.save()
    resize(members[0], cpu=3)


def test_a_member_that_is_refused_keeps_what_it_has(members: list[Session]) -> None:
    resize(members[0], memory=GIB)
    finish(members[0])
    finish(members[1], "It uses 1.5 GiB of memory.")
    finish(members[2])
    assert held() == [(2, GIB, 500), (2, 2 * GIB, 500), (2, GIB, 500)]
    resize(members[0], memory=GIB)  # asks for the one alone
    assert [member.events.filter(reason=Reason.RESIZING).count() for member in members] == [1, 2, 1]


def test_none_is_resized_while_one_cannot_be(members: list[Session]) -> None:
    Host.objects.filter(sessions=members[1]).update(status="LOST")
    assert refused(members[0], cpu=1)[GENERAL] == "sub1: Its host is not ready at present; try again later."
    Host.objects.update(status="READY", is_cordoned=True)
    assert "smaller" in refused(members[0], cpu=3)[GENERAL]
    whole = run_cluster(2, fgpu=2000)
    assert refused(whole[1], fgpu=1000)["fgpu"].startswith("main1: It holds a whole GPU")
    members[1].move_to(Status.ERROR, Reason.OUT_OF_MEMORY)
    assert refused(members[0], cpu=1)[GENERAL] == "sub1: Only a running session can be resized."


def test_members_that_differ_wait_again_for_what_the_first_has(members: list[Session]) -> None:
    resize(members[0], cpu=1)
    for member, problem in zip(members, ("", "It is busy.", ""), strict=True):
        finish(member, problem)
    Cluster.objects.update(host_addresses=["192.0.2.1"] * 3)
    for member in Session.objects.filter(cluster__isnull=False):
        member.move_to(Status.TERMINATING, Reason.CLUSTER_RETURNED)
        preemption.conclude(member)
    settling.settle_all()
    assert list(Session.objects.filter(cluster__isnull=False).values_list("status", "cpu")) == [("PENDING", 1)] * 3


def test_members_by_memory_wait_for_as_much_as_the_first(members: list[Session]) -> None:
    memory = members[0].held_shares[0][0].gpu.memory
    asked = {"gpu_memory": memory // 4, "min_gpu_memory": memory // 4, "min_fgpu": 0}
    Session.objects.filter(cluster=members[0].cluster_id).update(**asked)
    absent = make_session(
        **{
            "cluster": members[0].cluster,
            "rank": 3,
            "is_elastic": True,
            "fgpu": 500,
            "owner": members[0].owner,
            **asked,
        }
    )
    members[0].refresh_from_db()
    resize(members[0], fgpu=250)
    after = {"fgpu": 250, "gpu_memory": memory // 8, "min_gpu_memory": memory // 8, "min_fgpu": 0}
    assert Session.objects.filter(pk=absent.pk).values(*after).get() == after
    for member, problem in zip(members, ("", "It is busy.", ""), strict=True):
        finish(member, problem)
    Cluster.objects.update(host_addresses=["192.0.2.1"] * 3)
    for member in Session.objects.filter(cluster__isnull=False, is_elastic=False):
        member.move_to(Status.TERMINATING, Reason.CLUSTER_RETURNED)
        preemption.conclude(member)
    settling.settle_all()
    assert list(Session.objects.filter(cluster__isnull=False).values(*after)) == [after] * 4


def test_page_and_api_resize_all_and_say_what_applies(members: list[Session], owner: User) -> None:
    browser, path = browser_of(owner), f"/sessions/{members[0].pk}/"
    assert f"{path}resize/" in text_of(browser, path)
    dialog = text_of(browser, f"{path}resize/", **HTMX)
    assert "All members get the same" in dialog
    assert "Free now: 2 CPU cores more for each member, up to 4 CPU cores." in dialog
    answer = browser.post(f"{path}resize/", {"cpu": "3", "memory": "2 GiB", "fgpu": "0.75"}, headers=HTMX)
    assert json.loads(answer["HX-Trigger"])["sessions:resized"]["message"] == "Resizing train."
    finish(members[0])
    page = text_of(browser, path)
    assert "to 3 CPU cores, 2 GiB of memory and 0.75 fGPU" in page
    assert page.count('<span class="reason">Resizing</span>') == 2
    client = client_of(owner)

    def shown() -> Any:
        return client.get(f"/api/v1/sessions/{members[0].pk}/").json()

    assert shown()["resizing"] == {"cpu": 3, "memory": 2 * GIB, "fgpu": "0.75"}
    finish(members[1])
    finish(members[2], "It is busy.")
    assert shown()["resizing"] is None
    assert [(each["cpu"], each["fgpu"]) for each in shown()["cluster"]["members"]] == [
        *((3, "0.75"), (3, "0.75"), (2, "0.5"))
    ]
    again = client.post(f"/api/v1/sessions/{members[2].pk}/resize/", {"cpu": 1}, format="json")
    assert again.json()["resizing"] == {"cpu": 1, "memory": 2 * GIB, "fgpu": "0.5"}
    assert Session.objects.filter(resize__isnull=False).count() == 3
