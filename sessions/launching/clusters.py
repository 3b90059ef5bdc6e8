"""The clusters of a launch: what can never be granted, and their rows."""

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from typing import Final, NamedTuple

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from resources.amounts.units import CORE_MILLI, amount_text, size_text
from sessions.launching import validation
from sessions.launching.requests import ClusterRequest, LaunchRequest, MemberSize
from sessions.lifecycle import Kind
from sessions.models import MAX_MEMBERS, Cluster, ClusterMode, Session
from sessions.requeueing import preemption

MAX_RESTARTS: Final = 10
WITH_MAIN: Final = "It starts with main1 of its cluster, which says why that waits."
UNTIL_ROOM: Final = "It starts once its cluster runs and there is room that no other session waits for."


class HostSize(NamedTuple):
    """An empty host: cores, bytes and GPUs, with their model if they are of one."""

    cpu: int
    memory: int
    gpus: int
    gpu_model: str


def request_errors(request: LaunchRequest) -> dict[str, str]:
    """Return {field: message} for a cluster that is out of range, wherever it were to run."""
    cluster = request.cluster
    if cluster is None:
        return {}
    errors = {}
    if cluster.max_size is not None and not cluster.size <= cluster.max_size <= MAX_MEMBERS:
        errors["cluster_max_size"] = f"It grows to at least as many members as it starts with, at most {MAX_MEMBERS}."
    elif cluster.most < 2 or not 1 <= cluster.size <= MAX_MEMBERS:
        errors["cluster_size"] = f"A cluster has 2 to {MAX_MEMBERS} members."
    elif request.count * cluster.most > MAX_MEMBERS:
        errors["count"] = f"Start at most {MAX_MEMBERS // cluster.most} clusters of {cluster.most} members at once."
    if cluster.runs_on_all and not request.command:
        errors["cluster_runs_on_all"] = "Without a command there is nothing for all members to run."
    if not 0 <= cluster.max_restarts <= MAX_RESTARTS:
        errors["cluster_max_restarts"] = f"A cluster starts again at most {MAX_RESTARTS} times."
    if request.gpu_memory and cluster.main_fgpu:
        errors["cluster_main_fgpu"] = "The first member has as much GPU memory as each of the others, or no GPU."
    return errors | _main_errors(request)


def _main_errors(request: LaunchRequest) -> dict[str, str]:
    """Return {field: message} for a first member that no host could have beside the others."""
    if (main := request.main) is None:
        return {}
    found = validation.amount_errors(**main._asdict(), shared_memory=0, count=1)
    errors = {f"cluster_main_{name}": message for name, message in found.items() if name in main._fields}
    if request.shared_memory > main.memory:
        errors.setdefault("cluster_main_memory", f"Its shared memory takes {size_text(request.shared_memory)}.")
    # It may have no GPU though the image asks for one, which the others then have.
    for name, least in (("cpu", request.image.min_cpu), ("memory", request.image.min_memory)):
        if getattr(main, name) < least:
            errors.setdefault(f"cluster_main_{name}", f"{request.image} needs at least {amount_text(name, least)}.")
    if main.fgpu and request.fgpu and main.fgpu != request.fgpu:
        errors["cluster_main_fgpu"] = (
            "The first member has as much GPU as each of the others or none, or it alone has any."
        )
    return errors


def fit_errors(request: LaunchRequest, hosts: Iterable[HostSize], gpu_capacity: int, core_milli: int) -> dict[str, str]:
    """Return {field: message} where these hosts, even when empty, cannot take all members; the nearest that fits too.

    A GPU has `gpu_capacity` milli-fGPU, and a core of a session takes `core_milli` thousandths of one.
    """
    cluster = request.cluster
    if cluster is None:
        return {}
    for name, fgpu in (("fgpu", request.fgpu), ("cluster_main_fgpu", request.main.fgpu if request.main else 0)):
        if fgpu > gpu_capacity and fgpu % gpu_capacity:
            return {name: "A member of a cluster has a part of one GPU, or whole GPUs."}
    hosts = [*hosts]
    rooms = [_room(host, request, gpu_capacity, core_milli) for host in hosts]
    if hosts and request.main and all(room.beside < 0 for room in rooms):
        return _too_large(request.main, hosts, gpu_capacity)
    nearest = _most(cluster.mode, rooms, request)
    if cluster.size <= nearest or not nearest:  # none at all: another field says why
        return {}
    anywhere = _most(ClusterMode.ANY, rooms, request)
    if cluster.mode == ClusterMode.ANY:
        return {"cluster_size": f"The hosts of this group together have room for at most {nearest} such members."}
    texts = {
        ClusterMode.SINGLE_HOST: f"No host of this group has room for more than {nearest} such members.",
        ClusterMode.SPREAD: f"Only {nearest} hosts of this group have room for such a member.",
    }
    if cluster.size <= anywhere:
        return {"cluster_mode": f"{texts[cluster.mode]} All {cluster.size} fit if they may be on any hosts."}
    return {"cluster_size": texts[cluster.mode]}


def _too_large(main: MemberSize, hosts: Sequence[HostSize], gpu_capacity: int) -> dict[str, str]:
    """Return {field: message} for a first member for which no host has room."""
    most = {
        "cpu": max(host.cpu for host in hosts),
        "memory": max(host.memory for host in hosts),
        "fgpu": max(host.gpus for host in hosts) * gpu_capacity,
    }
    for name, amount in main._asdict().items():
        if amount > most[name]:
            return {f"cluster_main_{name}": f"A host of this group has at most {amount_text(name, most[name])}."}
    return {"cluster_main_cpu": "No host of this group has room for a first member of this size."}


class _Room(NamedTuple):
    """How many members an empty host takes, how many of them beside the first, -1 for not the first, and GPU model."""

    members: int
    beside: int
    model: str


def _most(mode: ClusterMode, rooms: Sequence[_Room], request: LaunchRequest) -> int:
    """Return how many members hosts take at most in a mode, of which those with GPUs have one model."""
    main = request.main or request.each
    most = 0
    for model in {room.model if request.fgpu else "" for room in rooms}:
        counts = [room.members for room in rooms if not request.fgpu or room.model == model]
        able, total = sum(map(bool, counts)), sum(counts)
        for first in rooms:
            is_same = not request.fgpu or first.model == model
            if first.beside < 0 or (main.fgpu and not is_same):
                continue
            here, count = 1 + first.beside * is_same, first.members * is_same
            in_mode = {
                ClusterMode.SINGLE_HOST: here,
                ClusterMode.SPREAD: 1 + able - bool(count),
                ClusterMode.ANY: here + total - count,
            }
            most = max(most, in_mode[mode])
    return most


def create(request: LaunchRequest, heads: Sequence[Session]) -> list[Session]:
    """Make the rows of these sessions the first members of clusters, which are stored; return all members, unsaved."""
    assert request.cluster
    rows = [_cluster_of(request.cluster, head) for head in heads]
    for row in rows:
        row.main_differs = request.main is not None
    Cluster.objects.bulk_create(rows)
    members = [member for row, head in zip(rows, heads, strict=True) for member in _members(row, head)]
    for head in heads:
        head.cpu, head.memory, head.fgpu = request.main or request.each
        if not head.fgpu:
            head.gpu_memory = head.min_fgpu = 0
    return members


def _cluster_of(asked: ClusterRequest, head: Session) -> Cluster:
    key = Ed25519PrivateKey.generate()
    ssh = serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return Cluster(
        id=head.pk,
        size=asked.size,
        max_size=asked.most if asked.most > asked.size else None,
        mode=asked.mode.value,
        shares_gpus=asked.shares_gpus,
        runs_on_all=asked.runs_on_all,
        max_restarts=asked.max_restarts,
        private_key=key.private_bytes(serialization.Encoding.PEM, *ssh).decode(),
        public_key=public.decode(),
    )


def _members(cluster: Cluster, head: Session) -> Iterator[Session]:
    head.cluster = cluster
    yield head
    for rank in range(1, cluster.most):
        member = copy(head)
        member.pk, member.rank, member.detail = Session().pk, rank, WITH_MAIN
        if rank >= cluster.size:
            member.is_elastic = member.is_preemptible = True
            member.charge_percent = preemption.charge_percent(head.resource_group, is_preemptible=True)
            member.detail = UNTIL_ROOM
        if not cluster.runs_on_all:
            member.command, member.kind = "", Kind.INTERACTIVE.value
        yield member


def _room(host: HostSize, request: LaunchRequest, gpu_capacity: int, core_milli: int) -> _Room:
    """Return what an empty host takes."""
    main = request.main or request.each
    left = host.cpu * CORE_MILLI - main.cpu * core_milli, host.memory - main.memory
    on_gpus = _on_gpus(host.gpus, request.fgpu, request, gpu_capacity)
    beside = min(_by_amounts(*left, request, core_milli), on_gpus - (main.fgpu > 0 and request.fgpu > 0))
    has_main = main.cpu <= host.cpu and min(left) >= 0 and _on_gpus(host.gpus, main.fgpu, request, gpu_capacity) > 0
    count = min(_by_amounts(host.cpu * CORE_MILLI, host.memory, request, core_milli), on_gpus)
    is_large = request.cpu <= host.cpu
    return _Room(count * is_large, max(0, beside * is_large) if has_main else -1, host.gpu_model)


def _by_amounts(cpu_milli: int, memory: int, request: LaunchRequest, core_milli: int) -> int:
    return min(cpu_milli // max(1, request.cpu * core_milli), memory // max(1, request.memory))


def _on_gpus(gpus: int, fgpu: int, request: LaunchRequest, gpu_capacity: int) -> int:
    """Return for how many members of so much GPU the devices are enough."""
    if fgpu <= 0 or not gpu_capacity:
        return MAX_MEMBERS
    if whole := fgpu // gpu_capacity:
        return gpus // whole
    shares = request.cluster is not None and request.cluster.shares_gpus
    return gpus * (gpu_capacity // fgpu if shares else 1)
