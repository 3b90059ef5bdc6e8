"""Specification of a scheduling pass, and the oracle of its tests: `plan` on a whole snapshot. Pure, deterministic.

What runs is `incremental_state`, which gives the same outcome from changes alone. `queue_order` says which request is
next, `cluster_state` whether limits allow it and which host takes it, `reservation` what is reserved for the head,
`forecast` when the others start, and `explanation` why they wait.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from scheduler.core.cluster.cluster_state import ClusterState
from scheduler.core.queue.order import queues_of, sequence
from scheduler.core.types import (
    BoundedClassKey,
    Placement,
    Plan,
    Rules,
    SessionRequest,
    Snapshot,
    WaitExplanation,
    entries_of,
)
from scheduler.core.waiting.explanation import Explainer
from scheduler.core.waiting.forecast import StartEstimate, forecast

LOOK_AHEAD: Final = 200  # distinct moments of session ends that a forecast covers


def plan(snapshot: Snapshot, now: datetime, *, look_ahead: int = LOOK_AHEAD) -> Plan:
    """Place the requests that can start, in order; explain for each of the others why and until when it waits.

    1. Serve each request in turn: limits first, then the host that the group's policy prefers.
    2. The first request of a group that does not fit and is within its limits becomes the head: a host is reserved.
    3. Requests behind it start wherever they do not delay the head, in a FIFO group by priority and predicted run
       time. A request that does not fit blocks no other.
    4. Explain the rest by the state after the pass: a pass over that state gives the same explanations.
    5. Forecast their starts, over at most `look_ahead` distinct ends of sessions.

    A request with alternatives is served in each of its groups, by GPU memory on each size of GPUs, until it starts.
    """
    cluster = ClusterState(snapshot)
    placements, left = serve(cluster, entries_of(snapshot.queue), snapshot.rules, now)
    return Plan(placements=tuple(placements), waiting=explain_waiting(cluster, left, now, look_ahead))


def serve(
    cluster: ClusterState, entries: Iterable[SessionRequest], rules: Mapping[int, Rules], now: datetime
) -> tuple[list[Placement], list[SessionRequest]]:
    """Place those of `entries` that can start; return the placements, one for each member, and the rest, in order.

    Once a session has started in one group, its entries in others are passed over. What was reserved for it there
    stays reserved until the next pass.
    """
    placements: list[Placement] = []
    refused: set[BoundedClassKey] = set()  # a pass only takes capacity: what was refused once stays refused
    started: set[str] = set()
    fifo, fair = queues_of(entries, rules)
    waiting = fifo.copy()
    for request in sequence(fifo, fair, cluster.fair_shares, cluster.is_behind_head, now):
        if request.group_id in fair:
            waiting.append(request)
        if request.id in started or (refused and request.bounded_class_key in refused):
            continue
        if cluster.limits.are_exceeded_by(request):
            continue
        if placed := cluster.place(request, now):
            placements += placed
            started.add(request.id)
        else:
            refused.add(request.bounded_class_key)
    return placements, [request for request in waiting if request.id not in started]


def explain_waiting(
    cluster: ClusterState, left: Sequence[SessionRequest], now: datetime, look_ahead: int = LOOK_AHEAD
) -> tuple[WaitExplanation, ...]:
    """Return why and until when the entries that `serve` has left wait; `cluster` is consumed.

    Alternatives count in the estimates; the reason is that of the group which a session prefers.
    """
    explain = Explainer(cluster).explain
    explanations = [explain(request) for request in left if not request.is_alternative]
    starts = forecast(cluster, left, now, look_ahead) if look_ahead and left else {}
    if starts:
        explanations = [_with_estimate(waiting, starts.get(waiting.session_id)) for waiting in explanations]
    return tuple(explanations)


def _with_estimate(waiting: WaitExplanation, start: StartEstimate | None) -> WaitExplanation:
    return waiting if start is None else waiting._replace(eta=start.at, eta_reason=start.eta_reason)
