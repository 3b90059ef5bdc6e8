"""What putting containers of the Docker Engine into their clusters' networks asks of root on the host."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from hostworker.cluster_protocol import ClusterPlace
from hostworker.privileged.base import ContainerFiles, PrivilegesError
from hostworker.privileged.host_privileges import HostPrivileges
from hostworker.runtime.docker.clusters import DockerClusters
from hostworker.runtime.sandboxes.pool import SandboxPool
from hostworker.runtime_protocol import StartError

FIRST = ClusterPlace(
    cluster="a",
    network="100.64.1.0/24",
    names=("main1", "sub1", "sub2"),
    addresses=("100.64.1.1", "100.64.1.2", "100.64.1.3"),
    hosts=("10.0.0.1", "10.0.0.1", "10.0.0.2"),
    index=1,
)
SECOND = replace(FIRST, index=2)


class Privileges(HostPrivileges):
    """Notes what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, object]] = []
        self.has_device = True

    def hold_cluster(self, network: str, local: str, elsewhere: Mapping[str, str], owner: str) -> None:
        self.asked.append(("hold", dict(elsewhere)))

    def join_cluster(self, container: ContainerFiles, network: str, names: Sequence[str], index: int) -> None:
        if not self.has_device:
            raise PrivilegesError("Cannot find the device.")
        self.asked.append(("join", index))

    def keep_clusters(self, networks: Collection[str], owner: str) -> None:
        self.asked.append(("keep", list(networks)))


class Pool:
    """Has a sandbox of every attempt."""

    @property
    def containers(self) -> "Pool":
        return self

    def find(self, key: object) -> dict[str, Any]:
        paths = {"HostnamePath": "/hostname", "HostsPath": "/hosts"}
        return {"Id": "c0ffee", "State": {"Running": True, "Pid": 1}, **paths}


@pytest.fixture
def privileges() -> Privileges:
    return Privileges()


@pytest.fixture
def clusters(privileges: Privileges) -> DockerClusters:
    return DockerClusters("lab", cast(SandboxPool, Pool()), privileges, lambda key: Path("/nowhere"))


def test_a_network_is_held_once_for_its_members(clusters: DockerClusters, privileges: Privileges) -> None:
    clusters.join("first", 1, FIRST)
    clusters.join("second", 1, SECOND)
    assert privileges.asked == [("hold", FIRST.elsewhere), ("join", 1), ("join", 2)]
    clusters.join("second", 1, replace(SECOND, hosts=("10.0.0.1", "10.0.0.1", "")))
    assert privileges.asked[3:] == [("hold", {}), ("join", 2)]


def test_it_is_held_anew_after_networks_were_removed(clusters: DockerClusters, privileges: Privileges) -> None:
    clusters.join("first", 1, FIRST)
    clusters.keep([])
    clusters.join("first", 1, FIRST)
    assert [name for name, _ in privileges.asked] == ["hold", "join", "keep", "hold", "join"]


def test_it_is_held_anew_after_no_member_could_join(clusters: DockerClusters, privileges: Privileges) -> None:
    clusters.join("first", 1, FIRST)
    privileges.has_device = False
    with pytest.raises(StartError, match="Cannot find the device"):
        clusters.join("second", 1, SECOND)
    privileges.has_device = True
    clusters.join("second", 1, SECOND)
    assert [name for name, _ in privileges.asked] == ["hold", "join", "hold", "join"]
