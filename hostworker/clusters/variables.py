"""The environment variables by which programs in a member of a cluster know the others. Pure; see docs/clusters.md.

Each framework and scheduler has names of its own, and scripts test for them. Left out are those by which programs take
their environment for one that it is not: SLURM_JOB_ID has Open MPI start what it starts through `srun`.
"""

import json
from typing import Final

from hostworker.cluster_protocol import ClusterPlace
from hostworker.privileged.cluster_network.network import MEMBER_DEVICE

HOSTFILE: Final = "/etc/cluster/hostfile"
MASTER_PORT: Final = 29500  # PyTorch's own
LAST_CALL_SECONDS: Final = 5  # for which an elastic torchrun that has enough members waits for more
MAX_RESTARTS: Final = 100  # of an elastic torchrun, of which each member that goes takes one
WORKER_PORT: Final = 2222  # TensorFlow's own
UCX_DEVICE: Final = "UCX_NET_DEVICES"
DEVICE_VARIABLES: Final = (  # by which libraries do not guess which network is between members
    "NCCL_SOCKET_IFNAME",
    "GLOO_SOCKET_IFNAME",
    "TP_SOCKET_IFNAME",
    "HOROVOD_GLOO_IFACE",
    "HYDRA_IFACE",
    "OMPI_MCA_btl_tcp_if_include",
    "OMPI_MCA_oob_tcp_if_include",
    "PRTE_MCA_oob_tcp_if_include",
)


def variables(place: ClusterPlace, device: str, *, session: str, gpus: int) -> dict[str, str]:
    """Return the variables of the member with this session's id and so many GPUs; what users set wins.

    `device` is its network device to the others, "" where it is not known.

    It is one process of `WORLD_SIZE`, unless a launcher makes more of it: with as many as it has GPUs.
    """
    processes = str(max(gpus, 1))
    return {
        **_of_peer(place, session),
        **_of_torch(place, processes),
        "TF_CONFIG": _tf_config(place),
        **_of_device(device),
        **_of_mpi(),
        **_of_schedulers(place, processes),
    }


def _of_peer(place: ClusterPlace, session: str) -> dict[str, str]:
    """Return the variables of Backend.AI's cluster sessions, and the same without its name."""
    own = {
        "HOST": place.name,
        "HOSTS": ",".join(place.present_names),
        "IDX": str(place.rank + 1),
        "ROLE": "main" if place.index == 1 else "sub",
        "SIZE": str(len(place.present)),
        "MODE": "multi-node" if place.elsewhere else "single-node",
    }
    return {
        **{f"CLUSTER_{name}": value for name, value in own.items()},
        **{f"BACKENDAI_CLUSTER_{name}": value for name, value in own.items()},
        "BACKENDAI_KERNEL_ID": session,
        "BACKENDAI_SESSION_ID": place.cluster,
    }


def _of_torch(place: ClusterPlace, processes: str) -> dict[str, str]:
    """Return those of `torch.distributed`, and torchrun's options: a bare `torchrun train.py` spans the cluster."""
    main, port = place.names[0], str(_ports(place, MASTER_PORT)[0])
    size, rank = str(len(place.present)), str(place.rank)
    return {
        "MASTER_ADDR": main,
        "MASTER_PORT": port,
        "WORLD_SIZE": size,
        "RANK": rank,
        "LOCAL_RANK": "0",
        "NODE_RANK": rank,
        "NNODES": size,
        "PET_MASTER_ADDR": main,
        "PET_MASTER_PORT": port,
        "PET_NNODES": size,
        "PET_NODE_RANK": rank,
        "PET_NPROC_PER_NODE": processes,
        **(_of_elastic_torch(place, place.min_size) if place.min_size else {}),
    }


def _of_elastic_torch(place: ClusterPlace, min_size: int) -> dict[str, str]:
    """Return those by which torchrun begins with the members that there are, and again whenever one comes or goes."""
    return {
        "PET_NNODES": f"{min_size}:{len(place.names)}",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"{place.names[0]}:{MASTER_PORT}",
        "PET_RDZV_ID": place.cluster,
        "PET_RDZV_CONF": f"last_call_timeout={LAST_CALL_SECONDS}",
        "PET_MAX_RESTARTS": str(MAX_RESTARTS),
        # Who has the store of an earlier round keeps it, and whoever has come waits for ever for its address (2.13).
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }


def _ports(place: ClusterPlace, usual: int) -> tuple[int, ...]:
    """Return each member's port on which programs find each other: the usual one, where no host's is in its way."""
    return place.host_network.program_ports if place.host_network else (usual,) * len(place.names)


def _tf_config(place: ClusterPlace) -> str:
    ports = _ports(place, WORKER_PORT)
    workers = [f"{place.names[index - 1]}:{ports[index - 1]}" for index in place.present]
    return json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": place.rank}})


def _of_device(device: str) -> dict[str, str]:
    """Return those that name the device between members; UCX finds by itself which of a host's is for RDMA."""
    names = DEVICE_VARIABLES if device else ()
    return dict.fromkeys((*names, UCX_DEVICE) if device == MEMBER_DEVICE else names, device)


def _of_mpi() -> dict[str, str]:
    return {
        "OMPI_MCA_orte_default_hostfile": HOSTFILE,
        "PRTE_MCA_prte_default_hostfile": HOSTFILE,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "HYDRA_LAUNCHER": "ssh",  # MPICH; else it takes the names of Slurm for its presence
    }


def _of_schedulers(place: ClusterPlace, processes: str) -> dict[str, str]:
    """Return the twins of the ranks that Slurm, SkyPilot and dstack have."""
    size, rank = str(len(place.present)), str(place.rank)
    addresses = "\n".join(place.addresses[index - 1] for index in place.present)
    return {
        "SLURM_NNODES": size,
        "SLURM_JOB_NUM_NODES": size,
        "SLURM_NODEID": rank,
        "SLURM_NTASKS": size,
        "SLURM_PROCID": rank,
        "SLURM_LOCALID": "0",
        "SLURM_JOB_NODELIST": ",".join(place.present_names),
        "SKYPILOT_NUM_NODES": size,
        "SKYPILOT_NODE_RANK": rank,
        "SKYPILOT_NODE_IPS": addresses,
        "SKYPILOT_NUM_GPUS_PER_NODE": processes,
        "DSTACK_NODES_NUM": size,
        "DSTACK_NODE_RANK": rank,
        "DSTACK_NODES_IPS": addresses,
        "DSTACK_MASTER_NODE_IP": place.addresses[0],
        "DSTACK_GPUS_PER_NODE": processes,
        "DSTACK_GPUS_NUM": str(int(processes) * len(place.present)),
    }
