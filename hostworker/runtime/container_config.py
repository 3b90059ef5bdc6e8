"""Bodies of create requests to the container engine (Docker Engine API v1.41). Pure."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from engine.containers import ATTEMPT_LABEL, HOSTNAME_LABEL, READ_VARIABLES, SESSION_LABEL
from fgpu.mounts import BindMount
from hostworker.clusters import member_files
from hostworker.runtime import mlflow_metrics
from hostworker.runtime.gpu_access import LEGACY, NO_DEVICES, GpuAccess
from hostworker.runtime_protocol import ContainerSpec, EnforcementSetup, FolderMount
from resources.accelerators.kinds import NVIDIA
from resources.amounts.units import CORE_MILLI

NO_ENFORCEMENT: Final = EnforcementSetup()

PIDS_LIMIT: Final = 4096  # processes and threads; a fork bomb ends here
MAX_CPU_SHARES: Final = 262_144  # that the kernel takes
OOM_SCORE_ADJ: Final = 500  # when the host itself runs out of memory, sessions die before the platform
LOG_FILE_SIZE: Final = "10m"
LOG_FILE_COUNT: Final = "2"

NO_CORE_DUMPS: Final = {"Name": "core", "Soft": 0, "Hard": 0}  # a core dump is as large as the memory
# What the kernel counts for a user, and so for all sessions of a host together; see setrlimit(2). Each session is
# bounded by its number of processes, and by its memory, to which the rest is charged.
UNLIMITED: Final = tuple(
    {"Name": name, "Soft": -1, "Hard": -1} for name in ("memlock", "msgqueue", "nproc", "sigpending")
)

# What sudo, apt and pip need of root, and no more: change user and owner, pass over file modes, signal other users'
# processes, and write the audit record without which sudo refuses where auditing is on.
SUDO_CAPABILITIES: Final = (
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
)

# In a member of a cluster: see hostworker/clusters/member_files.py.
JOIN_CLUSTER: Final = f"if [ -r {member_files.TARGET}/begin ]; then . {member_files.TARGET}/begin; fi"

# The main process of every session, in any image that has /bin/sh; it runs under the engine's init. A batch session's
# command is its $1: it runs as a child, whose exit code becomes the container's; where it is stopped, that is 143. On
# TERM it passes TERM on to everything in the container and ends as soon as nothing but init and itself is left; what
# remains is killed by the engine after the grace. An interactive shell ignores TERM, so terminals are hung up as well:
# whoever leads a session on one (fields 1, 6 and 7 of /proc/<pid>/stat) gets HUP. The sleep is only something to wait
# for, because a signal interrupts `wait` at once; it is killed, for TERM is lost on a child that is not yet `sleep`.
ENTRY_SCRIPT: Final = """
end() {
    trap '' TERM HUP
    kill -TERM -1
    [ "$code" = 0 ] && kill -KILL "$!"
    wait
    for process in /proc/[0-9]*; do
        read -r pid name state parent group session terminal rest < "$process/stat" &&
            [ "$session" = "$pid" ] && [ "$terminal" != 0 ] && kill -HUP "$pid"
    done
    while set -- /proc/[0-9]*; [ $# -gt 2 ]; do sleep 0.05 || sleep 1; done
    exit "$code"
}
code=0
trap 'end 2>/dev/null' TERM
@READ_VARIABLES@
@BEGIN@
if [ $# -gt 0 ]; then
    code=143
    /bin/sh -c "$1" &
    wait $!
    exit $?
fi
echo "$0 ready"
while :; do sleep 86400 & wait $!; done
""".replace("@READ_VARIABLES@", READ_VARIABLES).replace("@BEGIN@", f"{JOIN_CLUSTER}\n{mlflow_metrics.PREPARE}")

HOST_NETWORK: Final = "host"  # the engine's word for it
NETWORK: Final = "gpuplatform"  # of all sessions on a host
BRIDGE_DEVICE_LIMIT: Final = 15  # characters of a network device's name (IFNAMSIZ less the NUL)


def container_config(
    spec: ContainerSpec,
    owner: Mapping[str, str],
    network: str,
    setup: EnforcementSetup = NO_ENFORCEMENT,
    access: GpuAccess = LEGACY,
    *,
    has_quotas: bool = False,
    seccomp: str = "",
    lifts_limits: bool = False,
    device_nodes: Sequence[str] = (),
) -> dict[str, object]:
    """Return the body of the engine's create request; `owner` are the labels of installation and host.

    `has_quotas` says that the engine can bound what a container writes; `seccomp` is a profile, "" for the engine's;
    `lifts_limits` that it can lift limits of its own, which containers inherit.

    `device_nodes` are given to the container beside its GPUs, under their own names.

    `network` is the name of one, or `joined_network`; the engine refuses a host name for a container that joins.
    """
    hostname = {"Hostname": spec.hostname} if spec.hostname and not network.startswith(joined_network("")) else {}
    return {
        "Image": spec.image,
        # Not the image's own entry point: a session only has to stay up.
        "Entrypoint": ["/bin/sh", "-c", ENTRY_SCRIPT, spec.session, *([spec.command] if spec.command else [])],
        "Cmd": [],
        "StopSignal": "SIGTERM",
        "Healthcheck": {"Test": ["NONE"]},
        "Labels": {
            **owner,
            SESSION_LABEL: spec.session,
            ATTEMPT_LABEL: str(spec.attempt),
            HOSTNAME_LABEL: spec.hostname,
        },
        "Env": [f"{name}={value}" for name, value in _environment(spec, setup, access).items()],
        **hostname,
        "HostConfig": {
            **_host_config(spec, network, setup, access),
            "Devices": [
                *map(_device, (*access.device_nodes, *device_nodes)),
                *(_device(node.source, node.target, node.permissions) for node in access.edits.nodes),
            ],
            "GroupAdd": [str(group) for group in access.edits.groups],
            "SecurityOpt": _security_options(spec, seccomp),
            "Ulimits": [NO_CORE_DUMPS, *(UNLIMITED if lifts_limits else ())],
            **({"StorageOpt": {"size": str(spec.disk_bytes)}} if has_quotas and spec.disk_bytes else {}),
        },
    }


def without_quota(config: Mapping[str, Any]) -> dict[str, object]:
    """Return the body of a create request without a bound on what the container writes."""
    host = {name: value for name, value in config["HostConfig"].items() if name != "StorageOpt"}
    return {**config, "HostConfig": host}


def joined_network(sandbox: str) -> str:
    """Return the network mode that joins the container with this id."""
    return f"container:{sandbox}"


def bridge_device(network: str) -> str:
    """Return the name of the bridge that the network of this name is on."""
    if len(network) <= BRIDGE_DEVICE_LIMIT:
        return network
    return f"gp-{hashlib.sha256(network.encode()).hexdigest()[:12]}"


def network_options(name: str) -> dict[str, str]:
    """Return the bridge driver's options: no traffic between containers, and a device name of our own.

    The device name lets firewall rules name the bridge, and makes the driver refuse a second network: the engine's
    own check for duplicate names has a race.
    """
    device = bridge_device(name)
    return {"com.docker.network.bridge.enable_icc": "false", "com.docker.network.bridge.name": device}


def _environment(spec: ContainerSpec, setup: EnforcementSetup, access: GpuAccess) -> dict[str, str]:
    """Return the spec's environment with the devices pinned.

    Where a vendor's runtime is the engine's default, such a variable alone decides which devices a container gets, and
    many images set it to "all"; so they are ours, whatever the image or the user says. What an image has the linker
    preload is left out, since the engine's hooks on the host are run with the container's variables; and so are the
    user's own and others of the image, where a file sets them inside. But for NVIDIA's without CDI nothing is to add to
    the devices that the engine was asked for.
    """
    uuids = [] if access.uses_cdi else real_gpus(spec)
    hostname = {"HOSTNAME": spec.hostname} if spec.hostname else {}  # the engine's would be that of a sandbox
    return {
        **hostname,
        **dict(each.split("=", 1) for each in access.edits.environment),
        **spec.environment,
        **({} if setup.sets_variables else spec.variables),
        **setup.environment,
        **dict.fromkeys(setup.withheld, ""),
        **NO_DEVICES,
        **({"NVIDIA_VISIBLE_DEVICES": ",".join(uuids)} if uuids else {}),
        "LD_PRELOAD": "",
        "LD_AUDIT": "",
    }


def _mount(mount: BindMount) -> dict[str, object]:
    """Return a mount as the engine takes it; unlike its "Binds" it refuses a source that is missing."""
    return {
        "Type": "bind",
        "Source": str(mount.source),
        "Target": mount.target,
        "ReadOnly": mount.read_only,
        "BindOptions": {"Propagation": mount.propagation},
    }


def _folder_mount(mount: FolderMount) -> dict[str, object]:
    """Return the mount of a folder: private, and without what the host mounts below it."""
    return {
        "Type": "bind",
        "Source": str(mount.source),
        "Target": mount.target,
        "ReadOnly": mount.is_read_only,
        "BindOptions": {"Propagation": "rprivate", "NonRecursive": True},
    }


def _host_config(spec: ContainerSpec, network: str, setup: EnforcementSetup, access: GpuAccess) -> dict[str, object]:
    return {
        "NanoCpus": spec.cpu * 1_000_000_000,
        "CpuShares": cpu_shares(spec),
        "CpusetCpus": setup.cpus,
        "Memory": spec.memory_bytes,
        "MemorySwap": spec.memory_bytes,  # memory and swap together, so no swap
        "ShmSize": spec.shared_memory_bytes,
        "PidsLimit": PIDS_LIMIT,
        "OomScoreAdj": OOM_SCORE_ADJ,
        "Init": True,
        "CapDrop": ["ALL"],
        "CapAdd": list(SUDO_CAPABILITIES) if spec.allow_sudo else [],
        "NetworkMode": network,
        "Mounts": [
            *map(_mount, setup.mounts),
            *(_mount(BindMount(Path(each.source), each.target, each.is_read_only)) for each in access.edits.mounts),
            *map(_folder_mount, spec.folders),
        ],
        "RestartPolicy": {"Name": "no"},
        "LogConfig": {"Type": "json-file", "Config": {"max-size": LOG_FILE_SIZE, "max-file": LOG_FILE_COUNT}},
        "DeviceRequests": _device_requests(real_gpus(spec), access),
    }


def _device(node: str, target: str = "", permissions: str = "rw") -> dict[str, str]:
    return {"PathOnHost": node, "PathInContainer": target or node, "CgroupPermissions": permissions}


def cpu_shares(spec: ContainerSpec) -> int:
    """Return its weight when CPU is short: 1024 for each core that is guaranteed, as far as the kernel takes it."""
    return min(max(2, spec.cpu * spec.core_milli * 1024 // CORE_MILLI), MAX_CPU_SHARES)


def _security_options(spec: ContainerSpec, seccomp: str) -> list[str]:
    options = [] if spec.allow_sudo else ["no-new-privileges"]
    return [*options, f"seccomp={seccomp}"] if seccomp else options


def real_gpus(spec: ContainerSpec) -> list[str]:
    """Return the UUIDs of the container's GPUs of NVIDIA's that are not simulated."""
    return [gpu.uuid for gpu in spec.gpus if gpu.kind == NVIDIA and not gpu.is_simulated]


def _device_requests(uuids: Sequence[str], access: GpuAccess) -> list[dict[str, object]]:
    by_cdi = [*access.cdi_names, *(f"{NVIDIA}={uuid}" for uuid in uuids if access.uses_cdi)]
    if by_cdi:
        return [{"Driver": "cdi", "DeviceIDs": by_cdi}]
    if not uuids:
        return []
    return [{"Driver": "nvidia", "DeviceIDs": list(uuids), "Capabilities": [["gpu", "compute", "utility"]]}]
