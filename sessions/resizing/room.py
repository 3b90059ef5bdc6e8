"""What hosts and GPUs have free for the sessions that they have."""

from collections.abc import Sequence

from django.db.models import Sum

from resources.amounts.units import CORE_MILLI, FGPU_STEP
from resources.models import Gpu, Host
from sessions.models import GpuShare, Lease, Session, cpu_held
from sessions.resizing.sizes import SessionSize


def by_host(members: Sequence[Session]) -> dict[Host, list[Session]]:
    """Return the members that each host has; all of them have one."""
    found: dict[Host, list[Session]] = {}
    for member in members:
        assert member.host is not None
        found.setdefault(member.host, []).append(member)
    return found


def level(members: Sequence[Session], name: str, free: int) -> int:
    """Return up to how much of an amount each could have, where they have so much more together."""
    held: list[int] = sorted(getattr(member, name) for member in members)
    return min((sum(held[:count]) + free) // count for count in range(1, len(held) + 1))


def room(members: Sequence[Session], *, with_gpu: bool) -> SessionSize:
    """Return what their hosts, and their GPUs where that is asked for, have for each; two queries at most."""
    capacity, on_hosts = members[0].resource_group.gpu_capacity, by_host(members)
    leases = Lease.objects.filter(host__in=on_hosts).order_by().values("host")
    held = {each["host"]: each for each in leases.annotate(cores=cpu_held(), bytes=Sum("memory"))}
    cpu, memory, fgpu = [], [], [members[0].fgpu]
    for host, here in on_hosts.items():
        cores = (host.cpu * CORE_MILLI - held[host.pk]["cores"]) // here[0].core_milli
        cpu.append(min(host.cpu, level(here, "cpu", cores)))
        memory.append(level(here, "memory", host.memory - held[host.pk]["bytes"]))
    if with_gpu:
        by_gpu: dict[Gpu, list[Session]] = {}
        for member in members:
            by_gpu.setdefault(member.held_shares[0][0].gpu, []).append(member)
        shares = GpuShare.objects.filter(gpu__in=by_gpu).order_by().values_list("gpu")
        shared = dict(shares.annotate(Sum("milli")))
        free = {gpu: capacity - shared[gpu.pk] for gpu in by_gpu}
        fgpu = [min(capacity - FGPU_STEP, level(on_it, "fgpu", free[gpu])) for gpu, on_it in by_gpu.items()]
    return SessionSize(cpu=min(cpu), memory=min(memory), fgpu=min(fgpu))
