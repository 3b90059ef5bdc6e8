"""Estimate for sessions not yet submitted: the advisor's answer on the current state. Writes nothing."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Final, NamedTuple, cast

from accounts.limits import PolicyLimits
from accounts.models import User
from accounts.policies import bounds_of
from resources import clock
from resources.amounts.fields import MAX_INTEGER
from resources.amounts.units import CORE_MILLI
from resources.models import Image, ResourceGroup
from scheduler.advice.advisor import SMALLEST, Advice, SessionAdvice, advise_on
from scheduler.core.incremental_state import IncrementalState
from scheduler.core.types import (
    GPU_SIZE_TRAIT,
    ClusterMode,
    SessionRequest,
    Shape,
    Traits,
    by_gpu_memory,
    entries_of,
    in_groups,
)
from scheduler.snapshot.host_traits import OfferedTraits, gpu_choices, needed_traits
from scheduler.state.cache import StateCache
from scheduler.state.likely_starts import LikelyStarts
from sessions.launching import dependencies, group_choice, services
from sessions.launching.mounts import MountPlan
from sessions.launching.services import LaunchRequest
from sessions.limits import policy_checks
from sessions.requeueing import preemption

ESTIMATED_ID: Final = "order"  # prefix of the ids of the requests asked about
DEPENDENCY_TEXT: Final = "It waits for what it depends on."
START_TIME_TEXT: Final = "It waits for its start time."

state_cache = StateCache()
cache_lock = threading.Lock()


class GpuRoom(NamedTuple):
    """How often a request by GPU memory fits now on GPUs of a model and size, and the milli-fGPU that it is there."""

    group_id: int
    model: str  # "" where hosts have several
    memory: int
    fgpu_milli: int
    fits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Advice, the names of the groups of its alternatives by group id, and by GPU memory the room for it."""

    advice: Advice
    group_names: Mapping[int, str]
    rooms: Sequence[GpuRoom] = ()


def estimate(owner: User, order: LaunchRequest, planned: MountPlan | None = None) -> Estimate:
    """Return when all sessions of `order` will have started if submitted now, and what would start sooner.

    Takes a constant number of queries, a dozen or two, as it reads only what has changed. Raises RejectedError as
    `services.submit` does, unless the caller has checked the order, and planned its mounts.
    """
    planned = planned or services.check(owner, order)
    if not dependencies.are_met(order.depends_on):
        return blocked(order)
    now = clock.now()
    usable = list(ResourceGroup.objects.usable_for(owner, order.project))
    groups = {group.pk: group.name for group in usable}
    project_limits = {order.project.pk: order.project.limits()} if order.project else {}
    state, offered, likely = state_after_pass(now, {owner.pk: owner.policy.limits()}, project_limits)
    chosen = [group.pk for group in group_choice.groups_of(owner, order, planned)]
    traits = {group_id: _traits(order, planned, offered, group_id) for group_id in {*groups, *chosen}}
    requests = requests_of(owner, order, now, traits, chosen, offered.core_milli)
    others = [
        requests[0]._replace(
            group_id=group_id,
            traits=traits[group_id],
            alternatives=(),
            core_milli=offered.core_milli.get(group_id, CORE_MILLI),
        )
        for group_id in sorted(set(groups).difference(chosen))
    ]
    rooms: list[GpuRoom] = []
    if order.gpu_memory:
        least = max(order.fgpu, order.image.min_fgpu)
        choices = {it: gpu_choices(it, offered, order.gpu_memory, least) for it in traits}
        requests, others = ([by_gpu_memory(each, choices) for each in some] for some in (requests, others))
        rooms = _rooms(state, requests[0])
    graces = {group.pk: group.preemption_grace for group in usable}
    requests = [likely.past.predicted(request) for request in requests]
    advice = advise_on(state, requests, now, elsewhere=others, least=_least(order), graces=graces, likely=likely)
    if order.gpu_memory:  # what is proposed has the memory asked for too
        advice = replace(advice, alternatives=tuple(it._replace(fgpu_milli=order.fgpu) for it in advice.alternatives))
    return Estimate(advice=_not_before(advice, order.not_before, now), group_names=groups, rooms=rooms)


def _rooms(state: IncrementalState, request: SessionRequest) -> list[GpuRoom]:
    """Return the room for a request by GPU memory, or members of it, on each model and size of GPUs that has it."""
    found: dict[tuple[int, str, int, int], int] = {}
    for entry in entries_of([request]):
        size = next((trait for trait in entry.traits if trait.startswith(f"{GPU_SIZE_TRAIT}:")), None)
        group, one = state.cluster.groups.get(entry.group_id), entry.shape.of_members(1)
        for host in group.capacity.hosts if group is not None and size is not None else ():
            if size in host.traits:
                model, memory = host.gpu_model.partition(":")[2], int(str(size).split(":")[1])
                key = entry.group_id, model, memory, one.fgpu_milli
                count = 0 if host.is_reserved else host.member_count(one, shares_gpus=True)
                found[key] = found.get(key, 0) + count
    return [GpuRoom(*key, count) for key, count in found.items()]


def blocked(order: LaunchRequest) -> Estimate:
    """Return the estimate of sessions that wait for others, for how long nobody knows."""
    return Estimate(advice=Advice(sessions=(SessionAdvice(None, DEPENDENCY_TEXT),) * order.count), group_names={})


def _traits(order: LaunchRequest, planned: MountPlan, offered: OfferedTraits, group_id: int) -> Traits:
    """Return the traits that the hosts of a group must have."""
    cpu, memory, fgpu = map(max, order.each, order.main or order.each)
    least = 0 if order.gpu_memory else group_choice.min_gpu_memory_of(order)
    return needed_traits(
        group_id,
        offered,
        shape=Shape(cpu, memory, fgpu),
        required_roots=planned.required_roots,
        wanted_roots=planned.wanted_roots,
        image_id=order.image.pk or 0,
        architecture=order.image.architecture,
        is_local=order.image.is_local,
        gpu_model=order.gpu_model,
        min_gpu_memory=least,
        in_cluster=order.cluster is not None,
    )


def state_after_pass(
    now: datetime,
    users: Mapping[int, PolicyLimits] = MappingProxyType({}),
    projects: Mapping[int, PolicyLimits] = MappingProxyType({}),
) -> tuple[IncrementalState, OfferedTraits, LikelyStarts]:
    """Return the state after the next pass, as a copy for the caller, what each group offers, and what was learned.

    The last is to be read only. The limits, by id, are of those who have no session yet. All threads share this
    process's cache.
    """
    with cache_lock:
        state = state_cache.take(now)
        state.add_limits(users, projects)
        state.serve(now)  # its placements stay unconfirmed, and are read again the next time
        state.likely.advance(now)
        state_cache.put_back(state)
        return state.incremental.copy(), state.offered, state.likely


def requests_of(
    owner: User,
    order: LaunchRequest,
    now: datetime,
    traits: Mapping[int, Traits] = MappingProxyType({}),
    group_ids: Sequence[int] = (),
    core_milli: Mapping[int, int] = MappingProxyType({}),
) -> list[SessionRequest]:
    """Return the scheduler's requests for the sessions of `order`.

    They may start in each group of `group_ids`, by default that of the order, on hosts that have the group's `traits`,
    each of their cores at `core_milli` of it.
    """
    policies = bounds_of(owner, order.project)
    most = policies.max_lifetime
    first, *others = group_ids or [order.resource_group.pk]
    of_group = None if others else order.resource_group.max_lifetime
    bounds = [bound for bound in (order.time_limit, most, of_group) if bound is not None]
    request = SessionRequest(
        id="",
        owner_id=owner.pk,
        group_id=first,
        cpu=order.together.cpu,
        memory_bytes=order.together.memory,
        fgpu_milli=order.counted.together.fgpu,
        traits=traits.get(first, ()),
        priority=policy_checks.priority_of(owner, order.project, order.priority),
        queued_at=now,
        duration=min(bounds, default=None),
        project_id=order.project.pk if order.project else None,
        image_id=order.image.pk or 0,
        is_preemptible=preemption.is_asked(policies, order.is_preemptible),
        core_milli=core_milli.get(first, CORE_MILLI),
    )
    if order.cluster:
        mode = cast("ClusterMode", order.cluster.mode.value)
        request = request._replace(members=order.members, shares_gpus=order.cluster.shares_gpus, mode=mode)
        request = request._replace(main=order.counted.main)
    elsewhere = {each: traits.get(each, ()) for each in others}
    ids = [f"{ESTIMATED_ID}-{number:04}" for number in range(order.count)]
    ranks = range(1, order.members)
    return [
        in_groups(
            request._replace(id=each, member_ids=(each, *(f"{each}.{rank}" for rank in ranks)) if ranks else ()),
            elsewhere,
            core_milli,
        )
        for each in ids
    ]


def _least(order: LaunchRequest) -> Shape:
    """Return the amounts below which the order would be refused."""
    fgpu = MAX_INTEGER if order.gpu_memory else order.fgpu  # its shares follow from its GPU memory
    return least_of(order.image, order.shared_memory, fgpu, group_choice.min_gpu_memory_of(order))


def least_of(image: Image, shared_memory: int, fgpu: int, min_gpu_memory: int) -> Shape:
    """Return the least amounts of a session of an image that shares this memory and asks for this part of a GPU."""
    memory = max(image.min_memory, shared_memory, SMALLEST.memory_bytes)
    least = fgpu if min_gpu_memory else image.min_fgpu  # less of a GPU is less memory
    return Shape(max(image.min_cpu, SMALLEST.cpu), memory, max(least, SMALLEST.fgpu_milli))


def _not_before(advice: Advice, not_before: datetime | None, now: datetime) -> Advice:
    """Return the advice for sessions that start at `not_before` at the earliest, by the current state."""
    if not_before is None or not_before <= now:
        return advice
    at_start = SessionAdvice(not_before, START_TIME_TEXT)
    sessions = [
        at_start
        if each.starts == "now" or (each.starts and each.starts <= not_before)
        else each._replace(starts_from=None, starts_until=None, certainty=None)
        for each in advice.sessions
    ]
    is_late = sessions[-1] != at_start
    return Advice(sessions=tuple(sessions), alternatives=advice.alternatives if is_late else ())
