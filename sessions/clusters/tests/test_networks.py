"""Networks of clusters: which numbers they get, and what is noted of their hosts."""

import pytest
from pytest_django import Settings

from sessions.launching import networks
from sessions.models import MAX_MEMBERS, Cluster, ClusterMode
from tests import factories

pytestmark = pytest.mark.django_db


def make_cluster(*addresses: str, mode: ClusterMode = ClusterMode.ANY, **of_group: bool) -> Cluster:
    """Return a cluster that is placed with a member on a host of each of these addresses."""
    group = factories.make_group(**of_group)
    members = factories.scheduled_cluster(
        *[factories.make_host(group=group, cluster_address=each) for each in addresses], mode=mode
    )
    assert members[0].cluster
    return members[0].cluster


def test_a_placed_cluster_knows_its_network_and_hosts(settings: Settings) -> None:
    settings.COMPUTE_CLUSTER_RANGE = "100.64.8.0/22"
    cluster = make_cluster("10.0.0.2", "10.0.0.1", "10.0.0.2")
    assert cluster.network in {f"100.64.{number}.0/24" for number in range(8, 12)}
    assert cluster.host_addresses == ["10.0.0.2", "10.0.0.1", "10.0.0.2"]


def test_a_number_comes_back_after_all_others(settings: Settings) -> None:
    settings.COMPUTE_CLUSTER_RANGE = "100.64.8.0/22"
    cluster = make_cluster("10.0.0.1", "10.0.0.1")
    given = []
    for _ in range(8):
        Cluster.objects.update(network=None)
        networks.place([cluster.pk])
        given.append(Cluster.objects.get(pk=cluster.pk).network)
    assert len({*given[:4]}) == 4
    assert given[:4] == given[4:]


def test_no_two_clusters_have_one_network(settings: Settings) -> None:
    settings.COMPUTE_CLUSTER_RANGE = "100.64.8.0/23"
    first, second = (make_cluster("10.0.0.1", "10.0.0.1") for _ in range(2))
    assert first.network != second.network
    with pytest.raises(networks.NoNetworkLeftError):
        make_cluster("10.0.0.1", "10.0.0.1")
    Cluster.objects.filter(pk=first.pk).update(network=None)
    assert make_cluster("10.0.0.1", "10.0.0.1").network == first.network


@pytest.mark.parametrize(
    ("mode", "of_hosts", "expected"),
    [
        (ClusterMode.ANY, True, True),
        (ClusterMode.SPREAD, True, True),
        (ClusterMode.SINGLE_HOST, True, False),
        (ClusterMode.ANY, False, False),
    ],
)
def test_a_group_gives_clusters_the_network_of_hosts(mode: ClusterMode, of_hosts: bool, expected: bool) -> None:
    cluster = make_cluster("10.0.0.1", "10.0.0.2", mode=mode, cluster_host_network=of_hosts)
    assert (cluster.first_port in networks.PORTS) == expected
    assert cluster.network


def test_clusters_on_one_host_have_no_port_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "PORTS", range(20_000, 20_000 + 2 * networks.PORTS_OF_EACH))
    first = make_cluster("10.0.0.1", "10.0.0.2", cluster_host_network=True)
    second = make_cluster("10.0.0.2", "10.0.0.3", cluster_host_network=True)
    assert first.first_port is not None
    assert second.first_port is not None
    assert abs(first.first_port - second.first_port) >= 2 * MAX_MEMBERS
    assert make_cluster("10.0.0.4", "10.0.0.4", cluster_host_network=True).first_port
    with pytest.raises(networks.NoNetworkLeftError):
        make_cluster("10.0.0.1", "10.0.0.2", cluster_host_network=True)
