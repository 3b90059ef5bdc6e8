"""A container of a cluster in the network of its hosts: what it has of the host, and what it has not."""

import os
import stat
from pathlib import Path

import pytest

from hostworker.cluster_protocol import ClusterPlace, HostNetwork
from hostworker.runtime import infiniband
from hostworker.runtime.docker.runtime import DockerRuntime
from hostworker.runtime.tests.runtime_worlds import DockerWorld, launch, make_spec, runtime_of, tiny_world

pytestmark = pytest.mark.docker

world = pytest.fixture(tiny_world)
runtime = pytest.fixture(runtime_of)

NULL = os.makedev(1, 3)
PLACE = ClusterPlace(
    cluster="head",
    network="100.64.3.0/24",
    names=("main1", "sub1"),
    addresses=("10.0.0.1", "10.0.0.2"),
    hosts=("10.0.0.1", "10.0.0.2"),
    index=2,
    host_network=HostNetwork(ssh_ports=(20000, 20001), program_ports=(20064, 20065)),
)


def test_it_has_network_and_devices_of_its_host(
    world: DockerWorld, runtime: DockerRuntime, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(infiniband, "FOLDER", tmp_path)
    for name in ("rdma_cm", "umad0", "uverbs0"):
        os.mknod(tmp_path / name, 0o666 | stat.S_IFCHR, NULL)
    (tmp_path / "uverbs1").touch()
    spec = launch(runtime, make_spec(world.image, cluster=PLACE, hostname=PLACE.name))
    listed = world.execute(spec.session, 1, f"ls {tmp_path} && echo x >{tmp_path}/uverbs0 && hostname")
    assert listed == (0, "rdma_cm\nuverbs0\nsub1\n")
    assert world.execute(spec.session, 1, "readlink /proc/self/ns/net") == (0, f"{os.readlink('/proc/self/ns/net')}\n")
    assert runtime.address(spec.session, 1) is None
    use = runtime.uses()[spec.session, 1]
    assert (use.received_bytes, use.sent_bytes) == (None, None)
    assert not world.inspect(spec.session, 1)["HostConfig"]["CapAdd"]


def test_a_host_without_the_devices_serves_as_well(
    world: DockerWorld, runtime: DockerRuntime, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(infiniband, "FOLDER", tmp_path / "none")
    spec = launch(runtime, make_spec(world.image, cluster=PLACE, hostname=PLACE.name))
    assert world.inspect(spec.session, 1)["HostConfig"]["Devices"] == []
    assert world.execute(spec.session, 1, "hostname") == (0, "sub1\n")
