"""Why a session that may start in several resource groups waits in each of them.

The pass over each group writes its own entry; the session's row says what the most promising entry says: that of the
earliest estimate.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from django.db import connection

from resources.kick import kick_scheduler
from sessions.lifecycle import Reason
from sessions.models.placement import WaitStatus

NOT_TRIED: Final = frozenset({"", Reason.SUBMITTED, Reason.DEPENDENCY, Reason.START_TIME})
NO_HOPE: Final = (Reason.NO_HOST, Reason.NO_SUITABLE_HOST, Reason.NO_STORAGE)  # shown where no group has more to say

_LOCK: Final = """
    SELECT id, NOT group_waits ? %(group)s FROM compute_session
    WHERE id = ANY(%(sessions)s) AND status = 'PENDING' ORDER BY id FOR NO KEY UPDATE
"""  # in the order of ids, so that the passes over two groups never wait for each other
_WRITE: Final = """
    UPDATE compute_session session
    SET group_waits = session.group_waits || waits.entry,
        (reason, detail, eta, eta_reason) = (
            SELECT each.value ->> 'reason', each.value ->> 'detail', (each.value ->> 'eta')::timestamptz,
                   each.value ->> 'eta_reason'
            FROM jsonb_each(session.group_waits || waits.entry) AS each
            ORDER BY (each.value ->> 'eta')::timestamptz NULLS LAST, each.value ->> 'reason' = ANY(%(no_hope)s),
                     array_position(session.group_choices, each.key::bigint)
            LIMIT 1
        )
    FROM (
        SELECT session_id, jsonb_build_object(%(group)s::text, jsonb_build_object(
            'reason', reason, 'detail', detail, 'eta', eta, 'eta_reason', eta_reason)) AS entry
        FROM unnest(%(sessions)s::varchar[], %(reasons)s::varchar[], %(details)s::varchar[], %(etas)s::timestamptz[],
                    %(eta_reasons)s::varchar[]) AS texts (session_id, reason, detail, eta, eta_reason)
    ) AS waits
    WHERE session.id = waits.session_id AND session.status = 'PENDING'
"""


class GroupWait(NamedTuple):
    """Why a session waits in one group; the fields are those of `WaitStatus` after the id."""

    reason: str
    detail: str = ""
    eta: datetime | None = None
    eta_reason: str = ""


NOTHING_WRITTEN: Final = GroupWait("")


def read(stored: str | dict[str, Any]) -> dict[str, GroupWait]:
    """Return the entries of `Session.group_waits`, as stored or as text, by the group's id as text."""
    entries = json.loads(stored) if isinstance(stored, str) else stored
    return {
        group_id: GroupWait(
            entry["reason"],
            entry["detail"],
            datetime.fromisoformat(entry["eta"]) if entry["eta"] else None,
            entry["eta_reason"],
        )
        for group_id, entry in entries.items()
    }


def by_name(
    stored: str | dict[str, Any], choices: Sequence[int], names: Mapping[int, str]
) -> list[tuple[str, GroupWait]]:
    """Return the entries of `Session.group_waits` by their groups' names, in the order of `choices` (groups' ids)."""
    entries = read(stored)
    return [(names[each], entries[str(each)]) for each in choices if each in names and str(each) in entries]


def write(group_id: int, statuses: Sequence[WaitStatus]) -> None:
    """Write the entries of a group of those sessions that are still PENDING, and what their rows then say.

    In a transaction. Where the group says so for the first time, others may have waited for it: it asks for a pass.
    """
    ids = [status.session_id for status in statuses]
    columns = zip(*(status[1:] for status in statuses), strict=True)
    parameters: dict[str, Any] = {"group": str(group_id), "sessions": ids, "no_hope": [each.value for each in NO_HOPE]}
    parameters |= zip(("reasons", "details", "etas", "eta_reasons"), map(list, columns), strict=True)
    with connection.cursor() as cursor:
        cursor.execute(_LOCK, parameters)
        is_first = any(new for _, new in cursor.fetchall())
        cursor.execute(_WRITE, parameters)
    if is_first:
        kick_scheduler()
