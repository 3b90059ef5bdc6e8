"""Which sessions of its own owner a waiting session waits for, and with what less it would start. Writes nothing.

Each answer is tried on copies of the state that the next pass will decide on: without one of them, or with less, the
same pass is made.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from resources import clock
from resources.amounts.fields import MAX_INTEGER
from scheduler.advice.advisor import LOOK_AHEAD, Alternative, Starts, Trial, alternative_of
from scheduler.advice.estimate import least_of, state_after_pass
from scheduler.core.incremental_state import IncrementalState
from scheduler.core.types import RunningSession, SessionRequest, Shape, entries_of
from scheduler.state.wait_status import MIN_ETA_CHANGE
from sessions.models import Session

MAX_TRIED: Final = 8  # of an owner's sessions, those that started last: each costs a copy of the state and a pass
MAX_SECONDS: Final = 0.05  # of a processor for one page, beyond its first session: a trial takes 8 ms at 1,000 hosts
MAX_NAMED: Final = 3  # of those of which one is enough, or without which it would start sooner, but later than now

Whole = Sequence[RunningSession]  # a session, or the members of a cluster, which end together


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitAdvice:
    """What a waiting session waits for among its owner's sessions, and requests for less that would start now."""

    blockers: tuple[str, ...] = ()  # ids; the latest first
    is_any: bool = False  # one of them is enough; else all must end
    starts: Starts = None  # once they have
    smaller: tuple[Alternative, ...] = ()


def advice_on(sessions: Sequence[Session]) -> dict[str, WaitAdvice]:
    """Return, by id, what helps those of these sessions that wait for room; fetch their images with them.

    Takes a few queries, as it reads only what has changed. Leaves out the last ones where it takes too long.
    """
    now = clock.now()
    state, *_ = state_after_pass(now)
    waiting = [session for session in sessions if session.pk in state.requests]
    advice = {session.pk: WaitAdvice() for session in sessions if session.pk not in state.requests}
    end = time.thread_time() + MAX_SECONDS
    for number, session in enumerate(waiting):
        if not number or time.thread_time() < end:
            found = _advice(state, session.pk, _least(session, state.requests[session.pk]), now)
            if session.gpu_memory:  # it keeps that
                found = replace(found, smaller=tuple(it._replace(fgpu_milli=session.fgpu) for it in found.smaller))
            advice[session.pk] = found
    return advice


def _advice(state: IncrementalState, session_id: str, least: Shape | None, now: datetime) -> WaitAdvice:
    request = state.requests[session_id]
    smaller: tuple[Alternative, ...] = ()
    if least is not None:
        trial = Trial(state.cluster.copy(), [request], now)
        trial.withdraw(())
        smaller = tuple(alternative_of(each, "now") for each in trial.smaller_requests(least))
    own = _own(state, request)
    if not own:
        return WaitAdvice(smaller=smaller)
    if not _starts_without(state, own, session_id, now):
        at = _sooner(state, own, session_id, now) if len(own) <= MAX_NAMED else None
        return WaitAdvice(blockers=_ids(own) if at else (), starts=at, smaller=smaller)
    single = _ids([each for each in own if _starts_without(state, [each], session_id, now)])
    if single:
        return WaitAdvice(blockers=single[:MAX_NAMED], is_any=True, starts="now", smaller=smaller)
    needed = list(own)
    for each in own:
        others = [other for other in needed if other is not each]
        if _starts_without(state, others, session_id, now):
            needed = others
    return WaitAdvice(blockers=_ids(needed), starts="now", smaller=smaller)


def _ids(sessions: Sequence[Whole]) -> tuple[str, ...]:
    return tuple(members[0].cluster_id or members[0].session_id for members in sessions)


def _own(state: IncrementalState, request: SessionRequest) -> list[Whole]:
    """Return the owner's sessions that hold what the request could have, the latest first."""
    cluster = state.cluster
    groups = {entry.group_id for entry in entries_of([request])}
    is_over_limit = cluster.limits.are_exceeded_by(request)
    own = [
        session
        for session in cluster.running_sessions()
        if session.owner_id == request.owner_id
        and not session.preempted_for
        and (is_over_limit or cluster.group_of.get(session.host_id) in groups)
    ]
    wholes: dict[str, list[RunningSession]] = {}
    for session in sorted(own, key=lambda session: (session.started_at, session.session_id), reverse=True):
        wholes.setdefault(session.cluster_id or session.session_id, []).append(session)
    return list[Whole](wholes.values())[:MAX_TRIED]


def _without(state: IncrementalState, gone: Sequence[Whole]) -> IncrementalState:
    copy = state.copy()
    copy.update([session for members in gone for session in members], ())
    return copy


def _starts_without(state: IncrementalState, gone: Sequence[Whole], session_id: str, now: datetime) -> bool:
    """Return whether the next pass would start a session if these had ended."""
    return any(placed.session_id == session_id for placed in _without(state, gone).serve(now))


def _sooner(state: IncrementalState, own: Sequence[Whole], session_id: str, now: datetime) -> datetime | None:
    """Return when a session would start, later than now, without these; None where that is no sooner than with them."""
    rest = _without(state, own)
    rest.serve(now)
    start, present = (each.forecast(now, LOOK_AHEAD).get(session_id) for each in (rest, state.copy()))
    is_sooner = start is not None and (present is None or start.at < present.at - MIN_ETA_CHANGE)
    return start.at if start is not None and is_sooner else None


def _least(session: Session, request: SessionRequest) -> Shape | None:
    """Return the least that a waiting session may ask for; None where it keeps what it has, as it was parked."""
    if session.parked_on_id is not None:
        return None
    fgpu = MAX_INTEGER if session.gpu_memory else request.each[2]  # its shares follow from its GPU memory
    return least_of(session.image, session.shared_memory, fgpu, session.min_gpu_memory)
