"""Which waiting session starts where, and why and until when the others wait: pure, deterministic, exact to the device.

The way of a pass: `order` says who is next, `board` whether limits allow it, `room` and `where` which host takes it,
`reservation` what is kept for the head; `forecast` looks ahead, `reasons` finds the words.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from scheduler.core.board import Board
from scheduler.core.forecast import Start, forecast
from scheduler.core.order import sequence
from scheduler.core.reasons import Explainer
from scheduler.core.terms import Kind, Placement, Plan, Request, Rules, Snapshot, Waiting

LOOK_AHEAD: Final = 200  # moments at which sessions end that a pass looks ahead for estimates


def plan(snapshot: Snapshot, now: datetime, *, look_ahead: int = LOOK_AHEAD) -> Plan:
    """Place the requests in their order where they fit, and say of each of the others why and until when it waits.

    1. Serve each request in turn: limits first, then the host that the group's policy prefers.
    2. The first of a group that does not fit and is not limited becomes its head: a host is kept for it.
    3. Those behind start wherever they do not delay the head. Nobody who does not fit blocks anybody.
    4. Say why each of the rest waits, by the state after the pass: a pass over that state says the same.
    5. Go on in time, over at most `look_ahead` ends of sessions, for the estimates.
    """
    board = Board(snapshot)
    placements, left = serve(board, snapshot.queue, snapshot.rules, now)
    return Plan(placements=tuple(placements), waiting=tell(board, left, now, look_ahead))


def serve(
    board: Board, queue: Iterable[Request], rules: Mapping[int, Rules], now: datetime
) -> tuple[list[Placement], list[Request]]:
    """Place those of `queue` who can start; return the placements and who is left, each in the order served."""
    placements: list[Placement] = []
    left: list[Request] = []
    refused: set[Kind] = set()  # as a pass only takes, there is no room for them until it ends
    for request in sequence(queue, rules, board.share, now):
        if (refused and request.kind in refused) or board.bars(request):
            left.append(request)
        elif seated := board.seat(request, now):
            placements.append(seated)
        else:
            left.append(request)
            refused.add(request.kind)
    return placements, left


def tell(board: Board, left: Sequence[Request], now: datetime, look_ahead: int = LOOK_AHEAD) -> tuple[Waiting, ...]:
    """Return why those wait whom `serve` has left, and until when; `board` is spent."""
    explain = Explainer(board).explain
    told = [explain(request) for request in left]
    starts = forecast(board, left, now, look_ahead) if look_ahead and left else {}
    if starts:
        told = [_with_estimate(waiting, starts.get(waiting.session_id)) for waiting in told]
    return tuple(told)


def _with_estimate(waiting: Waiting, start: Start | None) -> Waiting:
    return waiting if start is None else waiting._replace(eta=start.at, because=start.because)
