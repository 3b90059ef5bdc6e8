"""Which waiting session starts where, and why and until when the others wait: pure, deterministic, exact to the device.

The way of a pass: `order` says who is next, `board` whether limits allow it, `room` and `where` which host takes it,
`reservation` what is kept for the head; `forecast` looks ahead, `reasons` finds the words.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from scheduler.core.cluster_state import ClusterState
from scheduler.core.explanation import Explainer
from scheduler.core.forecast import StartEstimate, forecast
from scheduler.core.queue_order import sequence
from scheduler.core.types import BoundedClassKey, Placement, Plan, Rules, SessionRequest, Snapshot, WaitExplanation

LOOK_AHEAD: Final = 200  # moments at which sessions end that a pass looks ahead for estimates


def plan(snapshot: Snapshot, now: datetime, *, look_ahead: int = LOOK_AHEAD) -> Plan:
    """Place the requests in their order where they fit, and say of each of the others why and until when it waits.

    1. Serve each request in turn: limits first, then the host that the group's policy prefers.
    2. The first of a group that does not fit and is not limited becomes its head: a host is kept for it.
    3. Those behind start wherever they do not delay the head. Nobody who does not fit blocks anybody.
    4. Say why each of the rest waits, by the state after the pass: a pass over that state says the same.
    5. Go on in time, over at most `look_ahead` ends of sessions, for the estimates.
    """
    cluster = ClusterState(snapshot)
    placements, left = serve(cluster, snapshot.queue, snapshot.rules, now)
    return Plan(placements=tuple(placements), waiting=explain_waiting(cluster, left, now, look_ahead))


def serve(
    cluster: ClusterState, queue: Iterable[SessionRequest], rules: Mapping[int, Rules], now: datetime
) -> tuple[list[Placement], list[SessionRequest]]:
    """Place those of `queue` who can start; return the placements and who is left, each in the order served."""
    placements: list[Placement] = []
    left: list[SessionRequest] = []
    refused: set[BoundedClassKey] = set()  # as a pass only takes, there is no room for them until it ends
    for request in sequence(queue, rules, cluster.share, now):
        if (refused and request.bounded_class_key in refused) or cluster.exceeds_limit(request):
            left.append(request)
        elif placement := cluster.place(request, now):
            placements.append(placement)
        else:
            left.append(request)
            refused.add(request.bounded_class_key)
    return placements, left


def explain_waiting(
    cluster: ClusterState, left: Sequence[SessionRequest], now: datetime, look_ahead: int = LOOK_AHEAD
) -> tuple[WaitExplanation, ...]:
    """Return why those wait whom `serve` has left, and until when; `board` is spent."""
    explain = Explainer(cluster).explain
    explanations = [explain(request) for request in left]
    starts = forecast(cluster, left, now, look_ahead) if look_ahead and left else {}
    if starts:
        explanations = [_with_estimate(waiting, starts.get(waiting.session_id)) for waiting in explanations]
    return tuple(explanations)


def _with_estimate(waiting: WaitExplanation, start: StartEstimate | None) -> WaitExplanation:
    return waiting if start is None else waiting._replace(eta=start.at, eta_reason=start.eta_reason)
