"""The locks under which limits are checked: which there are, until when, and who waits for whom."""

import pytest
from django.db import connection, transaction

from sessions.limits.locks import (
    GROUP_LOCK,
    LIMITS_LOCK,
    NOBODY,
    PROJECTS_LOCK,
    hold_all_limits,
    hold_group,
    hold_limits,
)

pytestmark = pytest.mark.django_db


def held() -> set[tuple[int, int, str]]:
    """Return class, object and mode of the advisory locks that this transaction holds."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT classid::bigint, objid::bigint, mode FROM pg_locks"
            " WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid()"
        )
        return {(kind, holder, mode.removesuffix("Lock")) for kind, holder, mode in cursor.fetchall()}


def test_each_lock_is_of_its_own_kind() -> None:
    assert len({GROUP_LOCK, LIMITS_LOCK, PROJECTS_LOCK}) == 3
    with transaction.atomic():
        hold_group(7)
        assert held() == {(GROUP_LOCK, 7, "Exclusive")}


def test_holders_are_locked_beside_each_other_and_against_all() -> None:
    hold_limits([5, 3], [4])
    assert held() == {
        (LIMITS_LOCK, NOBODY, "Share"),
        (LIMITS_LOCK, 3, "Exclusive"),
        (LIMITS_LOCK, 5, "Exclusive"),
        (PROJECTS_LOCK, 4, "Exclusive"),
    }


def test_nobody_writes_beside_who_holds_all_limits() -> None:
    hold_all_limits()
    assert held() == {(LIMITS_LOCK, NOBODY, "Exclusive")}


def test_without_holders_only_the_common_lock_is_taken() -> None:
    hold_limits([], [])
    assert held() == {(LIMITS_LOCK, NOBODY, "Share")}
