"""The locks under which leases are made and grow: of a resource group, and of the users and projects with limits.

Taken in this order, and users before projects, each in the order of ids: then no two transactions wait for each other.
Beside them `hold_if_free`, for work that one process at a time does.
"""

from collections.abc import Iterable
from typing import Final

from django.db import connection

GROUP_LOCK: Final = 0x47505550  # "GPUP": advisory lock, of each group, under which one at a time reads and writes
LIMITS_LOCK: Final = 0x4750554C  # "GPUL": advisory lock, of each user with limits, until the transaction ends
PROJECTS_LOCK: Final = 0x4750554D  # the same of each project
NOBODY: Final = 0  # in place of a user: held by all who write together, or by one alone
_LOCK_HOLDERS: Final = """
    SELECT pg_advisory_xact_lock(%s, holder) FROM (SELECT unnest(%s::int[]) AS holder ORDER BY 1) AS holders
"""


def hold_group(group_id: int) -> None:
    """Let nobody else make or enlarge leases of this group until the transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [GROUP_LOCK, group_id])


def hold_limits(owner_ids: Iterable[int], project_ids: Iterable[int]) -> None:
    """Let nobody else make or enlarge leases of these users and projects until the transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock_shared(%s, %s)", [LIMITS_LOCK, NOBODY])
        for lock, ids in ((LIMITS_LOCK, list(owner_ids)), (PROJECTS_LOCK, list(project_ids))):
            if ids:
                cursor.execute(_LOCK_HOLDERS, [lock, ids])


def hold_all_limits() -> None:
    """Let nobody else write where limits apply until the transaction ends: call it before the state is read."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [LIMITS_LOCK, NOBODY])


def hold_if_free(lock: int) -> bool:
    """Return whether the transaction has an advisory lock from now on, without waiting for it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [lock])
        return bool(cursor.fetchone()[0])
