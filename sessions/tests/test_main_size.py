"""Clusters whose first member has a size of its own: what is asked for, refused, placed and changed later."""

from datetime import timedelta
from typing import Any

import pytest

from accounts.models import User
from resources import clock
from resources.amounts.units import GIB
from resources.models import Host, ResourceGroup
from scheduler.advice.estimate import estimate
from scheduler.cycle import passes
from sessions.clusters import settling
from sessions.errors import RejectedError
from sessions.launching import services
from sessions.launching.requests import ClusterRequest
from sessions.lifecycle import Reason, Status
from sessions.models import Cluster, ClusterMode, GpuShare, Lease, Session
from sessions.parking import services as parking
from sessions.requeueing import preemption
from sessions.resizing import services as resizing
from sessions.resizing.sizes import SessionSize
from sessions.tests.launch_requests import make_launch_request, rejection
from tests.api import client_of
from tests.factories import make_group, make_host, make_image, make_policy, make_user
from tests.web import browser_of, text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner() -> User:
    return make_user()


@pytest.fixture
def group() -> ResourceGroup:
    return make_group()


@pytest.fixture
def hosts(group: ResourceGroup) -> list[Host]:
    """A host of 16 cores without a GPU, and two of 16 cores with one GPU of 2 fGPU."""
    return [make_host(group=group, gpus=gpus) for gpus in (0, 1, 1)]


def request_of(hosts: list[Host], size: int = 3, **overrides: Any) -> services.LaunchRequest:
    names = ("mode", "max_size", "main_cpu", "main_memory", "main_fgpu", "shares_gpus")
    options = {name: overrides.pop(name) for name in names if name in overrides}
    return make_launch_request(hosts[0], cluster=ClusterRequest(size=size, **options), **overrides)


def submitted(owner: User, hosts: list[Host], size: int = 3, **overrides: Any) -> list[Session]:
    (head,) = services.submit(owner, request_of(hosts, size, **overrides))
    return read(head)


def read(head: Session) -> list[Session]:
    return list(head.members.select_related("cluster", "host", "owner__policy", "project__policy"))


def sizes(head: Session) -> list[tuple[int, int, int]]:
    return list(head.members.values_list("cpu", "memory", "fgpu"))


def test_the_first_member_has_its_own_size(owner: User, hosts: list[Host]) -> None:
    head, *_ = submitted(owner, hosts, cpu=2, fgpu=500, main_cpu=1, main_memory=3 * GIB, main_fgpu=0)
    assert sizes(head) == [(1, 3 * GIB, 0), (2, GIB, 500), (2, GIB, 500)]
    assert Cluster.objects.get().main_differs
    alike, *_ = submitted(owner, hosts, cpu=2, main_cpu=2)
    assert not Cluster.objects.get(pk=alike.pk).main_differs


def test_limits_sum_both_sizes(hosts: list[Host]) -> None:
    narrow = make_user(policy=make_policy(cpu=8))
    assert rejection(narrow, request_of(hosts, cpu=2, main_cpu=5))["cpu"].endswith("all 3 members have 9 CPU cores.")
    assert len(submitted(narrow, hosts, cpu=2, main_cpu=4)) == 3


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"main_cpu": 0}, "cluster_main_cpu"),
        ({"main_memory": 1}, "cluster_main_memory"),
        ({"main_fgpu": 505}, "cluster_main_fgpu"),
        ({"main_fgpu": 700}, "cluster_main_fgpu"),
        ({"main_fgpu": 3000, "fgpu": 0}, "cluster_main_fgpu"),
        ({"main_cpu": 17}, "cluster_main_cpu"),
        ({"main_memory": 999 * GIB}, "cluster_main_memory"),
    ],
)
def test_a_first_member_that_cannot_be_is_refused(
    owner: User, hosts: list[Host], asked: dict[str, Any], field: str
) -> None:
    assert field in rejection(owner, request_of(hosts, **{"fgpu": 500} | asked))


def test_what_fits_nowhere_is_refused_with_the_nearest(owner: User, hosts: list[Host]) -> None:
    assert rejection(owner, request_of(hosts, 4, fgpu=500, main_fgpu=0)) == {
        "cluster_size": "The hosts of this group together have room for at most 3 such members."
    }
    assert "cluster_mode" in rejection(owner, request_of(hosts, fgpu=500, main_fgpu=0, mode=ClusterMode.SINGLE_HOST))
    assert "cluster_size" in rejection(owner, request_of(hosts, 4, cpu=9, main_cpu=16))
    assert len(submitted(owner, hosts, 3, fgpu=500, main_fgpu=0, mode=ClusterMode.SPREAD)) == 3


def test_main_needs_no_gpu_that_its_image_asks_for(owner: User, hosts: list[Host]) -> None:
    asked: dict[str, Any] = {"fgpu": 500, "main_fgpu": 0, "image": make_image(min_fgpu=300, min_cpu=2), "cpu": 2}
    assert rejection(owner, request_of(hosts, **asked, main_cpu=1))["cluster_main_cpu"].endswith(
        "at least 2 CPU cores."
    )
    assert "fgpu" in rejection(owner, request_of(hosts, **asked | {"fgpu": 0, "main_fgpu": 500}))
    head, *_ = running(owner, hosts, **asked | {"main_cpu": 4})
    resizing.resize(head, SessionSize(cpu=3, memory=GIB, fgpu=0), actor=owner)
    assert sizes(head)[0] == (4, GIB, 0), "the greater of both, until its host has applied it"


def test_gpu_memory_is_asked_for_where_main_alone_has_gpus(owner: User, hosts: list[Host]) -> None:
    asked: dict[str, Any] = {"main_fgpu": 500, "min_gpu_memory": 999 * GIB}
    assert "min_gpu_memory" in rejection(owner, request_of(hosts, **asked))
    assert "min_gpu_memory" in rejection(owner, request_of(hosts, **asked | {"main_fgpu": 0}))


def test_elastic_members_have_the_size_of_the_others(owner: User, hosts: list[Host]) -> None:
    head, *_ = running(owner, hosts, size=1, max_size=3, main_cpu=16)
    assert sizes(head) == [(16, GIB, 0), (2, GIB, 500), (2, GIB, 500)]
    assert read(head)[0].host == hosts[0], "which has no GPU; those of the others are of any one model"
    assert [passes.run_pass(), passes.run_pass(), passes.run_pass()] == [1, 1, 0]
    assert sorted(Lease.objects.values_list("cpu", flat=True)) == [2, 2, 16]
    resizing.resize(head, SessionSize(cpu=15, memory=GIB, fgpu=0), actor=owner)
    assert sizes(head)[1:] == [(2, GIB, 500), (2, GIB, 500)]


def test_sessions_end_so_that_main_finds_room(owner: User) -> None:
    group = make_group(preemption_grace=timedelta(minutes=5))
    hosts = [make_host(group=group, gpus=gpus) for gpus in (0, 1)]
    victims = services.submit(make_user(), make_launch_request(hosts[0], cpu=9, count=2, is_preemptible=True))
    assert passes.run_pass() == 2
    for victim in victims:
        victim.refresh_from_db()
        victim.move_to(Status.PREPARING, Reason.CLAIMED)
        victim.move_to(Status.RUNNING, Reason.STARTED)
    waiting, *_ = submitted(owner, hosts, 2, cpu=5, fgpu=500, main_cpu=12, main_fgpu=0)
    passes.run_pass()
    waiting.refresh_from_db()
    assert waiting.reason == Reason.PREEMPTION
    ending = Session.objects.get(preempt_by__isnull=False)
    assert ending.host == hosts[0]
    Session.objects.filter(pk=ending.pk).update(status=Status.TERMINATED, ended_at=clock.now())
    Lease.objects.filter(session=ending).delete()
    assert passes.run_pass() == 2
    assert [(each.host, each.lease.cpu) for each in read(waiting)] == [(hosts[0], 12), (hosts[1], 5)]


def test_less_for_the_others_starts_now(owner: User, hosts: list[Host]) -> None:
    services.submit(owner, make_launch_request(hosts[0], cpu=2, fgpu=500))
    assert passes.run_pass() == 1
    asked = request_of(hosts, 3, cpu=16, main_cpu=2, fgpu=500, main_fgpu=0)
    found = estimate(owner, asked).advice.alternatives
    assert [(each.cpu, each.fgpu_milli) for each in found if each.starts == "now"] == [(14, 500)]
    head, *_ = submitted(owner, hosts, 3, cpu=16, main_cpu=2, fgpu=500, main_fgpu=0)
    assert passes.run_pass() == 0
    browser = browser_of(owner)
    assert "main1, which keeps its own" in text_of(browser, f"/sessions/{head.pk}/less/")
    browser.post(f"/sessions/{head.pk}/less/", {"cpu": 14, "memory": GIB, "fgpu": 500})
    assert [cpu for cpu, *_ in sizes(head)] == [2, 14, 14]
    assert passes.run_pass() == 3


def test_main_without_a_gpu_leaves_them_to_the_others(owner: User, hosts: list[Host]) -> None:
    asked = request_of(hosts, fgpu=2000, cpu=15, main_cpu=8, main_fgpu=0)
    assert estimate(owner, asked).advice.sessions[0].starts == "now"
    head, *_ = submitted(owner, hosts, fgpu=2000, cpu=15, main_cpu=8, main_fgpu=0)
    assert passes.run_pass() == 3
    assert read(head)[0].host == hosts[0]
    assert list(Lease.objects.order_by("session__rank").values_list("cpu", flat=True)) == [8, 15, 15]
    assert GpuShare.objects.filter(milli=2000).count() == 2


def test_main_alone_may_have_gpus(owner: User, hosts: list[Host]) -> None:
    head, *_ = submitted(owner, hosts, 4, cpu=5, main_fgpu=2000, main_cpu=1, mode=ClusterMode.SINGLE_HOST)
    assert passes.run_pass() == 4
    assert list(GpuShare.objects.values_list("lease", "milli")) == [(head.pk, 2000)]
    waiting, *_ = submitted(owner, hosts, 3, cpu=16, main_cpu=16, main_fgpu=1000)
    assert passes.run_pass() == 0
    waiting.refresh_from_db()
    text = "Needs main1 with 16 CPU cores, 1 GiB of memory and 1 fGPU and 2 more with"
    assert waiting.detail.startswith(text)


def running(owner: User, hosts: list[Host], **overrides: Any) -> list[Session]:
    head, *_ = submitted(owner, hosts, **{"cpu": 2, "fgpu": 500, "main_cpu": 4, "main_fgpu": 0} | overrides)
    passes.run_pass()
    for member in head.members.filter(status=Status.SCHEDULED):
        member.move_to(Status.PREPARING, Reason.CLAIMED)
        member.move_to(Status.RUNNING, Reason.STARTED)
    settling.settle_all()
    return read(head)


def test_main_and_the_others_are_resized_apart(owner: User, hosts: list[Host]) -> None:
    head, sub, _ = running(owner, hosts)
    with pytest.raises(RejectedError, match="without a GPU"):
        resizing.resize(head, SessionSize(cpu=6, memory=GIB, fgpu=500), actor=owner)
    resizing.resize(sub, SessionSize(cpu=3, memory=GIB, fgpu=600), actor=owner)
    resizing.resize(head, SessionSize(cpu=5, memory=GIB, fgpu=0), actor=owner)
    assert sizes(head) == [(5, GIB, 0), (3, GIB, 600), (3, GIB, 600)]
    alike = running(owner, hosts, fgpu=300, main_fgpu=300, shares_gpus=True)
    with pytest.raises(RejectedError, match="the same part of a GPU"):
        resizing.resize(alike[1], SessionSize(cpu=2, memory=GIB, fgpu=400), actor=owner)


def test_both_sizes_stay_as_it_waits_again_or_is_resumed(owner: User, hosts: list[Host]) -> None:
    head, *_ = members = running(owner, hosts)
    Session.objects.filter(pk=members[2].pk).update(cpu=9)  # as where it was not resized with the others
    Lease.objects.filter(session=members[2]).update(cpu=9)
    parking.park(head, actor=owner)
    for member in read(head):
        member.move_to(Status.PARKED, Reason.PARKED)
    settling.settle_all()
    parking.resume(head, actor=owner)
    assert sizes(head) == [(4, GIB, 0), (2, GIB, 500), (2, GIB, 500)]
    assert passes.run_pass() == 3
    Session.objects.filter(pk=members[2].pk).update(cpu=9)
    Lease.objects.filter(session=members[2]).update(cpu=9)
    for member in read(head):
        member.move_to(Status.PREPARING, Reason.CLAIMED)
        member.move_to(Status.RUNNING, Reason.STARTED)
        member.move_to(Status.TERMINATING, Reason.CLUSTER_RETURNED)
        preemption.conclude(member)
    settling.settle_all()
    assert sizes(head) == [(4, GIB, 0), (2, GIB, 500), (2, GIB, 500)]


def test_api_takes_and_shows_both_sizes(owner: User, hosts: list[Host]) -> None:
    head, *_ = submitted(owner, hosts)
    body: dict[str, Any] = {"image": head.image.reference, "resource_group": hosts[0].group.name}
    body |= {"cpu": 2, "memory": "2g", "fgpu": "0.5", "cluster": {"size": 3, "main": {"cpu": 1, "fgpu": "0"}}}
    made = client_of(owner).post("/api/v1/sessions/", body, format="json").json()
    (shown,) = made if isinstance(made, list) else made.get("sessions", [made])
    members = shown["cluster"]["members"]
    assert [(each["cpu"], each["fgpu"]) for each in members] == [(1, "0"), (2, "0.5"), (2, "0.5")]
    body["cluster"]["main"] = {"fgpu": "0.7"}
    refused = client_of(owner).post("/api/v1/sessions/", body, format="json").json()
    assert "cluster.main.fgpu" in refused["errors"]


def test_pages_show_both_sizes(owner: User, hosts: list[Host]) -> None:
    head, sub, _ = running(owner, hosts)
    browser = browser_of(owner)
    page = text_of(browser, f"/sessions/{head.pk}/")
    assert "4 cores, 1 GiB RAM, 0 fGPU" in page
    assert "2 cores, 1 GiB RAM, 0.5 fGPU" in page
    assert "2 cores, 1 GiB RAM, 0.5 fGPU" in text_of(browser, "/sessions/")
    assert f"/sessions/{sub.pk}/resize/" in text_of(browser, f"/sessions/{sub.pk}/")
    again = text_of(browser, f"/sessions/launch/?again={head.pk}")
    assert 'id="id_cluster_main_cpu" value="4"' in again
    assert 'id="id_cluster_main_fgpu" value="0"' in again
    link = "fgpu=0.5&cluster_size=3&cluster_main_fgpu=0&cluster_main_memory=3221225472"
    linked = text_of(browser, f"/sessions/launch/?{link}")
    assert 'id="id_cluster_main_memory" value="3 GiB"' in linked
