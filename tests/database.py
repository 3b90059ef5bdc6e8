"""Emptying the test database after a test that commits: as Django's flush does, in a hundredth of its time."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from django.db import connection

# What the models themselves are, which Django's flush makes anew, and what is there from the first migration on.
KEPT: Final = {"auth_permission", "django_content_type", "deployments_runtimevariant"}


_kept = False


@contextmanager
def keeping_rows() -> Iterator[None]:
    """Let tests find what the ones before them committed, until the block ends; then empty the tables."""
    global _kept
    _kept = True
    try:
        yield
    finally:
        _kept = False
        empty_tables()


def empty_tables(_: Any = None) -> None:
    """Delete all rows, whatever refers to them or guards them; again where another process wrote meanwhile.

    Takes the place of `TransactionTestCase._fixture_teardown`, which truncates all tables and then tells all apps.
    """
    if _kept:
        return
    tables = set(connection.introspection.django_table_names(only_existing=True, include_views=False)) - KEPT
    union = " UNION ALL ".join(f"(SELECT '{table}' FROM {table} LIMIT 1)" for table in sorted(tables))
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")  # no triggers, no foreign keys
        try:
            while True:
                cursor.execute(union)
                if not (filled := [table for (table,) in cursor.fetchall()]):
                    return
                for table in filled:  # each by itself, so that no two tables are ever locked at once
                    cursor.execute(f"DELETE FROM {table}")
        finally:
            cursor.execute("SET session_replication_role = origin")
