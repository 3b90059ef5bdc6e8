"""What would become of a session if it were asked for now: when it starts, why then, what starts sooner. Pure.

The same board, order and rules as a pass, so the answer is what the next pass does if nothing changes before it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, NamedTuple

from resources.units import FGPU_STEP
from scheduler.core.board import Board
from scheduler.core.reasons import Explainer
from scheduler.core.standing import Standing
from scheduler.core.terms import Request, Snapshot

LOOK_AHEAD: Final = 30  # moments at which sessions end: what an answer may cost while a slider moves

Starts = datetime | Literal["now"] | None  # None: nobody can say


class Alternative(NamedTuple):
    """A request that starts sooner: so much milli-fGPU in that group."""

    group_id: int
    fgpu: int
    starts: Starts


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """When the request starts, why not at once, why then, and what would start sooner, the least change first."""

    starts: Starts
    reason: str = ""
    because: str = ""
    alternatives: tuple[Alternative, ...] = ()


def advise(
    snapshot: Snapshot,
    request: Request,
    now: datetime,
    *,
    other_group_ids: Iterable[int] = (),
    look_ahead: int = LOOK_AHEAD,
) -> Advice:
    """Return what the next pass would do with `request`, and else what is known of its start.

    `other_group_ids` are those that the user may use instead; `snapshot` holds their hosts, running and waiting
    sessions.
    """
    standing = Standing(snapshot, {one.id: rank for rank, one in enumerate((*snapshot.queue, request))})
    return advise_on(standing, request, now, other_group_ids=other_group_ids, look_ahead=look_ahead)


def advise_on(
    standing: Standing,
    request: Request,
    now: datetime,
    *,
    other_group_ids: Iterable[int] = (),
    look_ahead: int = LOOK_AHEAD,
) -> Advice:
    """As `advise`, on a state that is spent."""
    standing.add(request)
    if any(placement.session_id == request.id for placement in standing.serve(now)):
        return Advice(starts="now")
    board = standing.board
    told = Explainer(board).explain(request)
    less = _less(board, request)
    ghosts = [request._replace(id=f"{request.id} in {group_id}", group_id=group_id) for group_id in other_group_ids]
    elsewhere = [ghost for ghost in ghosts if board.could_start(ghost)]
    later = [ghost for ghost in ghosts if ghost not in elsewhere]
    starts = standing.play(now, look_ahead, later)
    own = starts.get(request.id)
    sooner = [
        Alternative(ghost.group_id, ghost.fgpu, starts[ghost.id].at)
        for ghost in later
        if ghost.id in starts and (own is None or starts[ghost.id].at < own.at)
    ]
    return Advice(
        starts=own.at if own else None,
        reason=told.detail,
        because=own.because if own else "",
        alternatives=(*less, *(Alternative(ghost.group_id, ghost.fgpu, "now") for ghost in elsewhere), *sooner),
    )


def _less(board: Board, request: Request) -> list[Alternative]:
    """Return the most fGPU below the request that starts now in its group: what is left when all others are served."""
    group = board.groups.get(request.group_id)
    if group is None:
        return []
    if group.head is not None and group.head.id == request.id:
        group.clear_head()
    rooms = [room for room in group.room.rooms if room.cpu >= request.cpu and room.memory >= request.memory]
    offered = max((room.fgpu for room in rooms if not room.is_closed), default=0)
    allowed = min((holder.fgpu for holder in board.holders(request.owner_id, request.project_id)), default=offered)
    most = int(min(request.fgpu - FGPU_STEP, offered, allowed)) // FGPU_STEP * FGPU_STEP
    smaller = request._replace(fgpu=most)
    return [Alternative(request.group_id, most, "now")] if most > 0 and board.could_start(smaller) else []
