"""What would become of an order: the advisor's answer from the state as it is now. Writes nothing."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.utils import timezone

from accounts.models import User
from resources.models import ResourceGroup
from scheduler.advisor import Advice, advise_on
from scheduler.core.incremental_state import IncrementalState
from scheduler.core.types import SessionRequest
from scheduler.state_cache import StateCache
from sessions import services
from sessions.services import LaunchRequest

MINE: Final = "order"  # longer ids than this one are the sessions'; it stands behind them where all else is equal
AFTER_OTHERS: Final = "It waits until the sessions that it depends on have succeeded."

state_cache = StateCache()
_cache_lock = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The advice, and the names of the groups that its alternatives are in: {group id: name}."""

    advice: Advice
    group_names: Mapping[int, str]


def estimate(owner: User, order: LaunchRequest) -> Estimate:
    """Return when all sessions of `order` have started if it is submitted now, and what would start sooner.

    Raises RejectedError as `services.submit` does. A dozen queries, whatever there is, which read what has changed.
    """
    services.check(owner, order)
    now = timezone.now()
    groups = {group.pk: group.name for group in ResourceGroup.objects.usable_by(owner)}
    if any(not session.has_succeeded for session in order.depends_on):
        return Estimate(advice=Advice(starts=None, reason=AFTER_OTHERS), group_names=groups)
    *ahead, request = requests_of(owner, order, now)
    state = _standing(owner, now)
    for other in ahead:
        state.add(other)
    advice = advise_on(state, request, now, other_group_ids=set(groups) - {order.resource_group.pk})
    return Estimate(advice=_not_before(advice, order.not_before, now), group_names=groups)


def _standing(owner: User, now: datetime) -> IncrementalState:
    """Return the state after the next pass, to be spent. What this process remembers of it serves all its threads."""
    with _cache_lock:
        state = state_cache.take(now)
        state.add_limits({owner.pk: owner.policy.limits()})
        state.serve(now)  # what is placed is only supposed, and read again
        state_cache.put_back(state)
        return state.state.copy()


def requests_of(owner: User, order: LaunchRequest, now: datetime) -> list[SessionRequest]:
    """Return the requests that the sessions of `order` would be."""
    bounds = [bound for bound in (order.time_limit, owner.policy.max_lifetime) if bound is not None]
    return [
        SessionRequest(
            id=f"{MINE}-{number:04}",
            owner_id=owner.pk,
            group_id=order.resource_group.pk,
            cpu=order.cpu,
            memory=order.memory,
            fgpu=order.fgpu,
            priority=order.priority,
            queued_at=now,
            duration=min(bounds, default=None),
        )
        for number in range(order.count)
    ]


def _not_before(advice: Advice, not_before: datetime | None, now: datetime) -> Advice:
    """Return the advice for a session that its owner wants to start later, by the state as it is now."""
    if not_before is None or not_before <= now or advice.starts is None:
        return advice
    if advice.starts == "now" or advice.starts <= not_before:
        return Advice(starts=not_before, reason="It waits for its start time.")
    return advice
