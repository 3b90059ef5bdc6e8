"""The watch over clusters of a host: which networks stay, who joins, and when members' commands begin."""

from collections.abc import Callable, Collection
from typing import cast

import pytest

from hostworker.agent import cluster_watch
from hostworker.agent.cluster_watch import ClusterWatch
from hostworker.cluster_protocol import ClusterPlace
from hostworker.containers import cluster_networks
from hostworker.runtime_protocol import Runtime, StartError
from hostworker.tests.fault_injection import FaultInjectingRuntime
from hostworker.tests.starting import start_session
from resources.models import Host, ResourceGroup
from sessions.clusters import settling
from sessions.lifecycle import Reason, Status
from sessions.models import Cluster, Session
from tests.factories import make_group, make_host, scheduled_cluster

pytestmark = pytest.mark.django_db


class Clusters:
    """What would be done to networks of this host. Implements ClusterControl."""

    def __init__(self) -> None:
        self.kept: list[set[str]] = []
        self.joined: list[str] = []
        self.begun: list[str] = []
        self.silence: list[str] = []
        self.before_keep: Callable[[], None] = lambda: None
        self.gone: set[str] = set()

    def join(self, session: str, attempt: int, place: ClusterPlace) -> None:
        if session in self.gone:
            raise StartError("It has ended.")
        self.joined.append(session)

    def silent(self, session: str, attempt: int, place: ClusterPlace) -> list[str]:
        return self.silence

    def let_begin(self, session: str, attempt: int) -> None:
        self.begun.append(session)

    def keep(self, networks: Collection[str]) -> None:
        self.before_keep()
        self.kept.append(set(networks))


@pytest.fixture
def clusters(runtime: FaultInjectingRuntime) -> Clusters:
    made = Clusters()
    runtime.clusters = made
    return made


@pytest.fixture
def host() -> Host:
    return make_host(group=make_group())


@pytest.fixture
def watch(runtime: FaultInjectingRuntime, clusters: Clusters, host: Host) -> ClusterWatch:
    cluster_networks.started.clear()
    return ClusterWatch(cast(Runtime, runtime), clusters, host, lambda: True)


def run(*members: Session) -> None:
    for member in members:
        member.move_to(Status.PREPARING, Reason.CLAIMED)
        member.move_to(Status.RUNNING, Reason.STARTED, "Running.")
    cluster_networks.started.set()


def network_of(member: Session) -> str:
    return Cluster.objects.get(pk=member.cluster_id).network or ""


def test_networks_of_placed_clusters_stay(
    watch: ClusterWatch, clusters: Clusters, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_watch, "LOOK_SECONDS", 0)
    elsewhere = make_host(group=host.group, cluster_address="10.0.0.2")
    same_machine = make_host(group=host.group)
    mine, both, others, neighbours = (
        scheduled_cluster(*hosts) for hosts in ([host] * 2, [elsewhere, host], [elsewhere] * 2, [same_machine] * 2)
    )
    watch.poll()
    assert clusters.kept == [{network_of(each[0]) for each in (mine, both, neighbours)}]
    Cluster.objects.exclude(pk=others[0].pk).update(network=None, host_addresses=[])
    watch.poll()
    assert clusters.kept[1:] == [set()]


def test_members_begin_once_all_others_answer(
    watch: ClusterWatch, clusters: Clusters, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_watch, "SILENCE_NOTED_SECONDS", 0)
    monkeypatch.setattr(cluster_watch, "LOOK_SECONDS", 0)
    main, sub = scheduled_cluster(host, host)
    elsewhere = make_host(group=host.group, cluster_address="10.0.0.2")
    other, _ = scheduled_cluster(host, elsewhere)
    clusters.silence = ["sub1"]
    run(main, other)
    watch.poll()
    assert (clusters.begun, sorted(clusters.joined)) == ([], sorted([main.pk, other.pk]))
    assert Session.objects.get(pk=main.pk).detail == (
        "Waits for sub1 to answer. Where they run, UDP port 14789 is not open between their hosts."
    )
    clusters.silence = []
    run(sub)
    watch.poll()
    assert sorted(clusters.begun) == sorted([main.pk, sub.pk, other.pk])
    assert Session.objects.get(pk=main.pk).detail == "Running."
    clusters.begun.clear()
    watch.poll()
    assert clusters.begun == []


def test_a_member_that_starts_changes_no_network(watch: ClusterWatch, clusters: Clusters, host: Host) -> None:
    main, sub = scheduled_cluster(host, host)
    watch.poll()
    kept = len(clusters.kept)
    run(main, sub)
    watch.poll()
    assert (len(clusters.kept), clusters.joined, sorted(clusters.begun)) == (kept, [], sorted([main.pk, sub.pk]))


def test_a_repair_that_failed_is_tried_again_soon(
    watch: ClusterWatch, clusters: Clusters, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_watch, "LOOK_SECONDS", 0)
    main, sub = scheduled_cluster(host, host)
    run(main, sub)
    watch.poll()
    assert sorted(clusters.begun) == sorted([main.pk, sub.pk])
    clusters.gone = {sub.pk}
    watch._repaired_at = float("-inf")
    watch.poll()
    clusters.gone = set()
    clusters.joined.clear()
    watch.poll()
    assert clusters.joined == [sub.pk]
    watch.poll()
    assert clusters.joined == [sub.pk]


def test_in_the_network_of_hosts_members_wait_until_all_run(
    watch: ClusterWatch, clusters: Clusters, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_watch, "SILENCE_NOTED_SECONDS", 0)
    monkeypatch.setattr(cluster_watch, "LOOK_SECONDS", 0)
    ResourceGroup.objects.update(cluster_host_network=True)
    main, sub = scheduled_cluster(host, make_host(group=host.group, cluster_address="10.0.0.2"))
    run(main)
    watch.poll()
    assert (clusters.begun, clusters.joined) == ([], [])
    assert Session.objects.get(pk=main.pk).detail == "Waits for the other members to run."
    run(sub)
    settling.settle(main.pk)
    clusters.silence = ["sub1"]
    watch.poll()
    assert Session.objects.get(pk=main.pk).detail == (
        "Waits for sub1 to answer. Where they run, a firewall is between their hosts."
    )
    clusters.silence = []
    watch.poll()
    assert clusters.begun == [main.pk]


def test_members_learn_of_those_that_come_and_go(
    watch: ClusterWatch, clusters: Clusters, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_watch, "LOOK_SECONDS", 0)
    main, _ = scheduled_cluster(host, host)
    other, _ = scheduled_cluster(host, host)
    run(main, other)
    watch.poll()
    watch.poll()
    clusters.joined.clear()
    Cluster.objects.filter(pk=main.pk).update(host_addresses=["10.0.0.1", "10.0.0.2"])
    watch.poll()
    watch.poll()
    assert clusters.joined == [main.pk], "once, and no other"


def test_one_that_cannot_join_keeps_no_other_from_it(watch: ClusterWatch, clusters: Clusters, host: Host) -> None:
    members = scheduled_cluster(host, host)
    clusters.gone = {members[0].pk}
    run(*members)
    watch.poll()
    assert clusters.joined == [members[1].pk]


def test_a_member_that_cannot_join_does_not_start(
    runtime: FaultInjectingRuntime, clusters: Clusters, host: Host
) -> None:
    main, sub = scheduled_cluster(host, host)
    clusters.gone = {sub.pk}
    for member in (main, sub):
        start_session(runtime, member.pk, 1)
    assert clusters.joined == [main.pk]
    assert [Session.objects.get(pk=member.pk).status for member in (main, sub)] == [Status.RUNNING, Status.PENDING]
    assert [state.session for state in runtime.containers()] == [main.pk]
