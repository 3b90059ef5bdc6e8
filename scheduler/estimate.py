"""Estimate for sessions not yet submitted: the advisor's answer on the current state. Writes nothing."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.utils import timezone

from accounts.models import Project, User
from accounts.policies import bounds_of
from resources.models import ResourceGroup
from scheduler.advisor import SMALLEST, Advice, SessionAdvice, advise_on
from scheduler.core.incremental_state import IncrementalState
from scheduler.core.types import SessionRequest, Shape, Traits
from scheduler.host_traits import OfferedTraits, needed_traits
from scheduler.state_cache import StateCache
from sessions import policy_checks, services
from sessions.services import LaunchRequest

ESTIMATED_ID: Final = "order"  # prefix of the ids of the requests asked about
DEPENDENCY_TEXT: Final = "It waits until the sessions that it depends on have succeeded."
START_TIME_TEXT: Final = "It waits for its start time."

state_cache = StateCache()
cache_lock = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Advice, and the names of the groups of its alternatives by group id."""

    advice: Advice
    group_names: Mapping[int, str]


def estimate(owner: User, order: LaunchRequest) -> Estimate:
    """Return when all sessions of `order` will have started if submitted now, and what would start sooner.

    Takes a constant number of queries, a dozen or two, as it reads only what has changed. Raises RejectedError as
    `services.submit` does.
    """
    planned = services.check(owner, order)
    now = timezone.now()
    groups = {group.pk: group.name for group in ResourceGroup.objects.usable_for(owner, order.project)}
    if any(not session.has_succeeded for session in order.depends_on):
        blocked = (SessionAdvice(None, DEPENDENCY_TEXT),) * order.count
        return Estimate(advice=Advice(sessions=blocked), group_names=groups)
    state, offered = _state_after_pass(owner, order.project, now)
    traits = needed_traits(
        order.resource_group.pk,
        offered,
        shape=Shape(order.cpu, order.memory, order.fgpu),
        required_roots=planned.required_roots,
        wanted_roots=planned.wanted_roots,
        image_id=order.image.pk or 0,
        architecture=order.image.architecture,
        is_local=order.image.is_local,
    )
    requests = requests_of(owner, order, now, traits)
    others = sorted(set(groups) - {order.resource_group.pk})
    advice = advise_on(state, requests, now, other_group_ids=others, least=_least(order))
    return Estimate(advice=_not_before(advice, order.not_before, now), group_names=groups)


def _state_after_pass(owner: User, project: Project | None, now: datetime) -> tuple[IncrementalState, OfferedTraits]:
    """Return the state after the next pass, as a copy for the caller, and what each group offers.

    All threads share this process's cache.
    """
    with cache_lock:
        state = state_cache.take(now)
        state.add_limits({owner.pk: owner.policy.limits()}, {project.pk: project.limits()} if project else {})
        state.serve(now)  # its placements stay unconfirmed, and are read again the next time
        state_cache.put_back(state)
        return state.incremental.copy(), state.offered


def requests_of(owner: User, order: LaunchRequest, now: datetime, traits: Traits = ()) -> list[SessionRequest]:
    """Return the scheduler's requests for the sessions of `order`, whose hosts must have these traits."""
    most = bounds_of(owner, order.project).max_lifetime
    bounds = [bound for bound in (order.time_limit, most, order.resource_group.max_lifetime) if bound is not None]
    return [
        SessionRequest(
            id=f"{ESTIMATED_ID}-{number:04}",
            owner_id=owner.pk,
            group_id=order.resource_group.pk,
            cpu=order.cpu,
            memory_bytes=order.memory,
            fgpu_milli=order.fgpu,
            traits=traits,
            priority=policy_checks.priority_of(owner, order.project, order.priority),
            queued_at=now,
            duration=min(bounds, default=None),
            project_id=order.project.pk if order.project else None,
            image_id=order.image.pk or 0,
        )
        for number in range(order.count)
    ]


def _least(order: LaunchRequest) -> Shape:
    """Return the amounts below which the order would be refused."""
    image = order.image
    memory = max(image.min_memory, order.shared_memory, SMALLEST.memory_bytes)
    return Shape(max(image.min_cpu, SMALLEST.cpu), memory, max(image.min_fgpu, SMALLEST.fgpu_milli))


def _not_before(advice: Advice, not_before: datetime | None, now: datetime) -> Advice:
    """Return the advice for sessions that start at `not_before` at the earliest, by the current state."""
    if not_before is None or not_before <= now:
        return advice
    at_start = SessionAdvice(not_before, START_TIME_TEXT)
    sessions = [
        at_start if each.starts == "now" or (each.starts and each.starts <= not_before) else each
        for each in advice.sessions
    ]
    is_late = sessions[-1] != at_start
    return Advice(sessions=tuple(sessions), alternatives=advice.alternatives if is_late else ())
