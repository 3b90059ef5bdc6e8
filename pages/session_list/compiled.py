"""Queries that are compiled once per process: Django takes longer to compile one than PostgreSQL to run it."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

from django.db import connection
from django.db.models import QuerySet
from django.db.models.expressions import RawSQL
from psycopg.types.datetime import TimestamptzLoader

_VALUES: Final = object()  # placeholder of the values in a compiled query

Select = Callable[[RawSQL], QuerySet[Any, Any]]


def of_sessions(select: Select, session_ids: Sequence[str]) -> list[Any]:
    """Return the tuples of `select`, which takes the subquery of session ids that it is about; one query."""
    return _run(select, "varchar", list(session_ids))


def of_numbers(select: Select, numbers: Sequence[int]) -> list[Any]:
    """Return the tuples of `select`, which takes the subquery of numeric ids that it is about; one query."""
    return _run(select, "bigint", list(numbers))


def _run(select: Select, kind: str, values: list[Any]) -> list[Any]:
    sql, parameters = _compiled(select, kind)
    with connection.cursor() as cursor:
        # The driver's own loader of times is ten times as fast as Django's.
        cursor.cursor.adapters.register_loader("timestamptz", TimestamptzLoader)
        cursor.execute(sql, [values if each is _VALUES else each for each in parameters])
        return list(cursor.fetchall())


@cache
def _compiled(select: Select, kind: str) -> tuple[str, Sequence[Any]]:
    values = RawSQL(f"SELECT unnest(%s::{kind}[])", [_VALUES])  # noqa: S611  # a parameter, and our own types
    sql, parameters = select(values).query.sql_with_params()  # our types
    # among so many joins the planner takes the subquery last, and reads the whole table before
    return sql.replace(f"IN (SELECT unnest(%s::{kind}[]))", f"= ANY (%s::{kind}[])"), parameters
