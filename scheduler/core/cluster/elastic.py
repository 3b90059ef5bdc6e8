"""Elastic members of clusters: they start on what all others leave, and end before others. Pure.

None of them waits in a queue: nothing is reserved or ended for them, and they take no part in estimates.
"""

from collections.abc import Iterable, Iterator
from copy import copy

from scheduler.core.capacity.host_capacity import HostCapacity
from scheduler.core.capacity.placement_policy import split_of
from scheduler.core.cluster.group_state import GroupState
from scheduler.core.queue.remaining_limits import HolderLimits
from scheduler.core.types import Placed, RunningSession, SessionRequest


def find_beside(group: GroupState, request: SessionRequest) -> Placed | None:
    """Return where one more member of a cluster that runs can start, as its mode allows; None if nowhere.

    On hosts that are not reserved, first on those of its cluster; its GPUs are of their model.
    """
    if request.beside is None or group.capacity.find(request.shape) is None:  # as a rule: this costs next to nothing
        return None
    for host in _candidates(group, request):
        able = host.copy()
        if not request.shares_gpus:
            _hide_gpus(able, request.beside.gpu_ids)
        if able.fits(request.shape):
            shares = able.take(request.shape, split_of(group.capacity.policy, able, request.shape))
            return 1, host.host_id, shares
    return None


def _candidates(group: GroupState, request: SessionRequest) -> Iterator[HostCapacity]:
    """Yield the hosts on which it may start, the preferred first."""
    assert request.beside is not None
    own = [host for host in group.capacity.hosts if host.host_id in request.beside.host_ids]
    models = {host.gpu_model for host in own if not {*request.beside.gpu_ids}.isdisjoint(host.gpu_ids)}
    among = own if request.mode == "single-host" else group.capacity.hosts
    able = [
        host
        for host in among
        if not host.is_reserved
        and (not models or host.gpu_model in models or not request.fgpu_milli)
        and not (request.mode == "spread" and host.host_id in request.beside.host_ids)
        and host.fits(request.shape)
    ]
    failed, near = request.avoided_host_ids, request.beside.host_ids
    yield from sorted(able, key=lambda host: (host.host_id in failed, host.host_id not in near))


def _hide_gpus(host: HostCapacity, gpu_ids: Iterable[int]) -> None:
    """Have nothing free on these devices."""
    for gpu_id in gpu_ids:
        if gpu_id in host.gpu_ids:
            host.device_free[host.gpu_ids.index(gpu_id)] = 0
    host.update_totals()


def in_the_way_of(
    request: SessionRequest, limits: HolderLimits, elastic: Iterable[RunningSession]
) -> list[RunningSession]:
    """Return those of the elastic members, the youngest, without which limits allow a request; none if they never do.

    Those that are about to end count as gone.
    """
    left = HolderLimits({}, {})
    left.users = {key: copy(each) for key, each in limits.users.items() if key == request.owner_id}
    left.projects = {key: copy(each) for key, each in limits.projects.items() if key == request.project_id}
    chosen: list[RunningSession] = []
    for member in sorted(elastic, key=lambda each: (not each.is_preemptible, each.started_at), reverse=True):
        if not left.are_exceeded_by(request):
            break
        if member.owner_id in left.users or member.project_id in left.projects:
            left.count(member, 1)
            chosen += [member] if member.is_preemptible else []
    return [] if left.are_exceeded_by(request) else chosen
