"""The limits of users across resource groups, whose passes run at the same time: checked under a lock of each user."""

from collections.abc import Sequence
from typing import Final

from django.db import connection

from accounts import limits
from accounts.limits import Amounts, PolicyLimits
from scheduler.core.remaining_limits import UNLIMITED
from scheduler.core.types import Placement
from scheduler.state import SchedulerState
from sessions import usage

LIMITS_LOCK: Final = 0x4750554C  # "GPUL": advisory lock, of each user with limits, until the transaction ends
NOBODY: Final = 0  # in place of a user: held by all passes together, or by one alone
_LOCK_OWNERS: Final = """
    SELECT pg_advisory_xact_lock(%s, owner) FROM (SELECT unnest(%s::int[]) AS owner ORDER BY 1) AS owners
"""  # in the order of ids, so that two passes never wait for each other


class ExceededLimitError(Exception):
    """A pass over another group has used up a limit since the state was read; nothing may be written by that state."""


def hold(state: SchedulerState, placements: Sequence[Placement]) -> None:
    """Lock the users with limits among the owners of `placements` and check these against what they hold by now.

    In the transaction that writes them next. Raises ExceededLimitError. Three queries; none where no limits apply.
    """
    asked: dict[int, Amounts] = {}
    limits_of: dict[int, PolicyLimits] = {}
    for placement in placements:
        session = state.placed(placement.session_id)
        for remaining in state.incremental.cluster.limits_of(session.owner_id, None):
            if remaining.limits != UNLIMITED:
                limits_of[session.owner_id] = remaining.limits
        shape = session.shape
        one = Amounts(cpu=shape.cpu, memory=shape.memory_bytes, fgpu=shape.fgpu_milli, sessions=1)
        asked[session.owner_id] = asked.get(session.owner_id, Amounts()) + one
    if not limits_of:
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock_shared(%s, %s)", [LIMITS_LOCK, NOBODY])
        cursor.execute(_LOCK_OWNERS, [LIMITS_LOCK, list(limits_of)])
    held = usage.held_by(limits_of)
    for owner_id, policy_limits in limits_of.items():
        wanted = asked[owner_id] + held.get(owner_id, Amounts())
        if names := limits.exceeded(policy_limits, wanted):
            raise ExceededLimitError(f"user {owner_id} holds more {', '.join(names)} by now")


def hold_alone() -> None:
    """Let no other pass write where limits apply until the transaction ends: call it before the state is read."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [LIMITS_LOCK, NOBODY])
