"""What programs of each framework read of their place in a cluster."""

import json
from dataclasses import replace

from hostworker.cluster_protocol import ClusterPlace, HostNetwork
from hostworker.clusters.variables import variables

PLACE = ClusterPlace(
    cluster="head",
    network="100.64.3.0/24",
    names=("main1", "sub1", "sub2"),
    addresses=("100.64.3.1", "100.64.3.2", "100.64.3.3"),
    hosts=("10.0.0.1", "10.0.0.1", "10.0.0.2"),
    index=2,
)


def test_each_framework_finds_the_member_by_its_own_names() -> None:
    found = variables(PLACE, "cluster0", session="second", gpus=2)
    expected = {
        "BACKENDAI_CLUSTER_HOST": "sub1",
        "BACKENDAI_CLUSTER_HOSTS": "main1,sub1,sub2",
        "BACKENDAI_CLUSTER_IDX": "2",
        "BACKENDAI_CLUSTER_ROLE": "sub",
        "BACKENDAI_CLUSTER_MODE": "multi-node",
        "BACKENDAI_SESSION_ID": "head",
        "BACKENDAI_KERNEL_ID": "second",
        "CLUSTER_SIZE": "3",
        "MASTER_ADDR": "main1",
        "WORLD_SIZE": "3",
        "RANK": "1",
        "PET_NODE_RANK": "1",
        "PET_NPROC_PER_NODE": "2",
        "NCCL_SOCKET_IFNAME": "cluster0",
        "UCX_NET_DEVICES": "cluster0",
        "SLURM_PROCID": "1",
        "SLURM_JOB_NODELIST": "main1,sub1,sub2",
        "SKYPILOT_NODE_IPS": "100.64.3.1\n100.64.3.2\n100.64.3.3",
        "DSTACK_MASTER_NODE_IP": "100.64.3.1",
        "DSTACK_GPUS_NUM": "6",
    }
    assert found.items() >= expected.items()
    workers = ["main1:2222", "sub1:2222", "sub2:2222"]
    assert json.loads(found["TF_CONFIG"]) == {
        "cluster": {"worker": workers},
        "task": {"type": "worker", "index": 1},
    }


def test_an_elastic_cluster_says_its_least_and_most() -> None:
    four = replace(PLACE, names=(*PLACE.names, "sub3"), addresses=(*PLACE.addresses, "100.64.3.4"))
    place = replace(four, hosts=("10.0.0.1", "", "10.0.0.2", "10.0.0.1"), index=4, min_size=1)
    expected = {
        "CLUSTER_HOST": "sub3",
        "CLUSTER_HOSTS": "main1,sub2,sub3",
        "CLUSTER_IDX": "3",
        "WORLD_SIZE": "3",
        "RANK": "2",
        "PET_NNODES": "1:4",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": "main1:29500",
        "SKYPILOT_NODE_IPS": "100.64.3.1\n100.64.3.3\n100.64.3.4",
    }
    assert variables(place, "cluster0", session="fourth", gpus=0).items() >= expected.items()
    assert "PET_RDZV_BACKEND" not in variables(PLACE, "cluster0", session="second", gpus=0)
    assert place.elsewhere == {"100.64.3.3": "10.0.0.2"}


def test_open_mpi_does_not_take_it_for_slurm() -> None:
    assert not {"SLURM_JOBID", "SLURM_JOB_ID"} & variables(PLACE, "cluster0", session="second", gpus=0).keys()


def test_in_host_networks_no_other_is_in_the_way() -> None:
    ports = HostNetwork(ssh_ports=(20000, 20001, 20002), program_ports=(20064, 20065, 20066))
    place = replace(PLACE, host_network=ports, addresses=PLACE.hosts)
    found = variables(place, "eth1", session="second", gpus=1)
    expected = {
        "MASTER_ADDR": "main1",
        "MASTER_PORT": "20064",
        "PET_MASTER_PORT": "20064",
        "NCCL_SOCKET_IFNAME": "eth1",
        "GLOO_SOCKET_IFNAME": "eth1",
        "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.1\n10.0.0.2",
    }
    assert found.items() >= expected.items()
    assert json.loads(found["TF_CONFIG"])["cluster"] == {"worker": ["main1:20064", "sub1:20065", "sub2:20066"]}
    assert "UCX_NET_DEVICES" not in found
    assert not [name for name in variables(place, "", session="second", gpus=1) if "IFNAME" in name]
