"""Clusters: what is queued, and what is refused at which field."""

from typing import Any

import pytest

from accounts.models import User
from resources.models import Host, ResourceGroup
from sessions.launching import clusters, services
from sessions.launching.mounts import MountRequest
from sessions.launching.requests import ClusterRequest
from sessions.lifecycle import Kind, Status
from sessions.models import Cluster, ClusterMode, Mount, Session
from sessions.tests.launch_requests import make_launch_request, rejection
from tests.factories import make_folder, make_gpu, make_group, make_host, make_policy, make_root, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def group() -> ResourceGroup:
    return make_group()


@pytest.fixture
def hosts(group: ResourceGroup) -> list[Host]:
    """Two hosts of 16 cores and 2 GPUs of 2 fGPU each."""
    return [make_host(group=group, gpus=2) for _ in range(2)]


def refused(hosts: list[Host], size: int = 4, *, owner: User | None = None, **overrides: Any) -> dict[str, str]:
    names = ("mode", "shares_gpus", "runs_on_all", "max_restarts")
    options = {name: overrides.pop(name) for name in names if name in overrides}
    request = make_launch_request(hosts[0], cluster=ClusterRequest(size=size, **options), **overrides)
    return rejection(owner or make_user(), request)


def test_each_member_is_queued_alike(hosts: list[Host]) -> None:
    owner = make_user()
    folder = make_folder(owner, root=make_root(*hosts))
    cluster = ClusterRequest(size=3, mode=ClusterMode.SINGLE_HOST, shares_gpus=True, max_restarts=2)
    mounted = [MountRequest(folder=folder)]
    order = make_launch_request(
        hosts[0], name="train", fgpu=500, command="train", cluster=cluster, count=2, mounts=mounted
    )
    heads = services.submit(owner, order)
    assert [head.name for head in heads] == ["train-1", "train-2"]
    for head in heads:
        members = list(Session.objects.filter(cluster=head.pk).order_by("rank"))
        assert [member.rank for member in members] == [0, 1, 2]
        assert members[0] == head
        alike = {(member.name, member.cpu, member.fgpu, member.owner_id, member.status) for member in members}
        assert alike == {(head.name, 1, 500, owner.pk, Status.PENDING)}
        assert [member.command for member in members] == ["train", "", ""]
        assert [member.kind for member in members] == [Kind.BATCH, Kind.INTERACTIVE, Kind.INTERACTIVE]
        assert all(member.events.count() == 1 for member in members)
        assert [member.detail for member in members] == ["", clusters.WITH_MAIN, clusters.WITH_MAIN]
    stored = Cluster.objects.get(pk=heads[0].pk)
    assert (stored.size, stored.mode, stored.shares_gpus, stored.max_restarts) == (3, "single-host", True, 2)
    assert stored.public_key.startswith("ssh-ed25519 ")
    assert stored.private_key != Cluster.objects.get(pk=heads[1].pk).private_key
    assert Mount.objects.filter(folder=folder).count() == 6


def test_members_go_where_the_storage_of_their_folders_is(hosts: list[Host]) -> None:
    owner = make_user()
    mounted = [MountRequest(folder=make_folder(owner, root=make_root(hosts[0])))]
    assert refused(hosts, 2, owner=owner, fgpu=1000, mounts=mounted) == {}
    text = "The hosts of this group together have room for at most 2 such members."
    assert refused(hosts, 3, owner=owner, fgpu=1000) == {}
    found = refused(hosts, 3, owner=owner, fgpu=1000, mounts=mounted)
    assert found == {"mounts": f"Not all hosts have the storage of these folders. {text}"}


def test_all_members_run_the_command_where_asked_so(hosts: list[Host]) -> None:
    cluster = ClusterRequest(size=2, runs_on_all=True)
    services.submit(make_user(), make_launch_request(hosts[0], command="train", cluster=cluster))
    assert set(Session.objects.values_list("command", "kind")) == {("train", "batch")}


def test_members_share_a_name_that_no_other_session_takes(hosts: list[Host]) -> None:
    owner = make_user()
    services.submit(owner, make_launch_request(hosts[0], name="train", cluster=ClusterRequest(size=2)))
    assert "name" in rejection(owner, make_launch_request(hosts[0], name="train"))


@pytest.mark.parametrize("size", [1, 65])
def test_a_size_out_of_range_is_refused(hosts: list[Host], size: int) -> None:
    assert refused(hosts, size) == {"cluster_size": "A cluster has 2 to 64 members."}


def test_what_makes_no_sense_is_refused(hosts: list[Host]) -> None:
    assert list(refused(hosts, runs_on_all=True)) == ["cluster_runs_on_all"]
    assert list(refused(hosts, max_restarts=11)) == ["cluster_max_restarts"]
    assert list(refused(hosts, fgpu=3000)) == ["fgpu"]
    assert list(refused(hosts, 32, count=3, fgpu=0)) == ["count"]


@pytest.mark.parametrize("overrides", [{"cpu": 0}, {"memory": 0}, {"fgpu": -10}, {"cpu": -1, "memory": -1}])
def test_amounts_out_of_range_are_refused_as_of_any_session(hosts: list[Host], overrides: dict[str, Any]) -> None:
    assert overrides.keys() <= refused(hosts, 2, **overrides).keys()


@pytest.mark.parametrize(
    ("size", "options", "error"),
    [
        (4, {"fgpu": 500}, {}),
        (5, {"fgpu": 500}, {"cluster_size": "The hosts of this group together have room for at most 4 such members."}),
        (5, {"fgpu": 500, "shares_gpus": True}, {}),
        (2, {"fgpu": 4000}, {}),
        (3, {"fgpu": 4000}, {"cluster_size": "The hosts of this group together have room for at most 2 such members."}),
        (2, {"fgpu": 500, "mode": ClusterMode.SINGLE_HOST}, {}),
        (
            3,
            {"fgpu": 500, "mode": ClusterMode.SINGLE_HOST},
            {
                "cluster_mode": "No host of this group has room for more than 2 such members."
                " All 3 fit if they may be on any hosts."
            },
        ),
        (3, {"mode": ClusterMode.SPREAD}, {"cluster_mode": "Only 2 hosts of this group have room for such a member."
                " All 3 fit if they may be on any hosts."}),
        (4, {"cpu": 9}, {"cluster_size": "The hosts of this group together have room for at most 2 such members."}),
    ],
)  # fmt: skip
def test_what_fits_nowhere_is_refused_with_the_nearest(
    hosts: list[Host], size: int, options: dict[str, Any], error: dict[str, str]
) -> None:
    assert refused(hosts, size, **options) == error


def test_members_get_gpus_of_one_model(group: ResourceGroup) -> None:
    hosts = [make_host(group=group) for _ in range(3)]
    for host, model in zip(hosts, ("A", "B", "B"), strict=True):
        make_gpu(host=host, name=model)
    assert refused(hosts, 2, fgpu=500) == {}
    assert list(refused(hosts, 3, fgpu=500)) == ["cluster_size"]
    assert refused(hosts, 3) == {}


def test_policies_count_every_member(hosts: list[Host]) -> None:
    narrow = make_user(policy=make_policy(max_cluster_size=3))
    assert list(refused(hosts, 4, owner=narrow)) == ["cluster_size"]
    few = make_user(policy=make_policy(max_sessions=3))
    assert "cluster_size" in refused(hosts, 4, owner=few)
    small = make_user(policy=make_policy(cpu=3))
    assert refused(hosts, 4, owner=small)["cpu"].endswith("; all 4 members have 4 CPU cores.")
    patient = make_user(policy=make_policy(max_pending=3))
    assert "count" in refused(hosts, 4, owner=patient)
    assert refused(hosts, 3, owner=patient) == {}
