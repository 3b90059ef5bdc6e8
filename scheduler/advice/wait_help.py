"""What helps a session that waits: its owner's own sessions that are in its way, by name, and whether less would do."""

from collections.abc import Collection
from dataclasses import dataclass

from scheduler.advice.advisor import Starts
from scheduler.advice.own_sessions import advice_on
from sessions.lifecycle import Kind, Status
from sessions.models import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """A session of the same owner that holds what the waiting one needs."""

    pk: str
    name: str
    may_be_parked: bool
    may_be_ended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitHelp:
    """Equal ones look the same."""

    blockers: tuple[Blocker, ...]
    is_any: bool  # to end one of them is enough
    starts: Starts  # once they have ended
    may_ask_for_less: bool  # and starts now


def help_for(session_ids: Collection[str]) -> dict[str, WaitHelp | None]:
    """Return, by id, what helps those of these sessions that wait, None for nothing; without those left out by time."""
    waiting = list(Session.objects.filter(pk__in=session_ids, status=Status.PENDING).select_related("image"))
    advice = advice_on(waiting) if waiting else {}
    ids = {blocker for each in advice.values() for blocker in each.blockers}
    rows = Session.objects.filter(pk__in=ids).values_list("pk", "name", "status", "kind") if ids else []
    known = {
        pk: Blocker(
            pk=pk,
            name=name,
            may_be_parked=status == Status.RUNNING and kind == Kind.INTERACTIVE,
            may_be_ended=status != Status.TERMINATING,
        )
        for pk, name, status, kind in rows
    }
    return {
        session_id: WaitHelp(
            blockers=tuple(known[blocker] for blocker in each.blockers if blocker in known),
            is_any=each.is_any,
            starts=each.starts,
            may_ask_for_less=bool(each.smaller),
        )
        if each.blockers or each.smaller
        else None
        for session_id, each in advice.items()
    }
