"""Refuses poolers between a process and PostgreSQL: locks of a connection would lock nothing where they share one."""

from collections.abc import Iterable
from typing import Any, Final

import psycopg
from django.core.checks import CheckMessage, Error
from django.db import connection

REFUSED: Final = "unsupported startup parameter"  # how pgbouncer refuses the options of settings.DATABASES
PROBLEM: Final = (
    "A connection pooler such as pgbouncer stands between the platform and PostgreSQL. Advisory locks belong to a "
    "connection, and hold nothing where transactions share one: set DATABASE_URL to the address of PostgreSQL itself. "
    "The platform pools its connections by itself."
)


def pooler_problem() -> str:
    """Return why what answers at DATABASE_URL is of no use; "" where it is PostgreSQL itself, or nothing answers.

    Makes a connection of its own, as the pool of settings.DATABASES would hide the reason of a refusal. A pooler tells
    clients a process id of its own, and in no mode that of the server process which runs their queries.
    """
    parameters = connection.get_connection_params()
    parameters.pop("pool", None)
    try:
        with psycopg.connect(**parameters) as session:
            row = session.execute("SELECT pg_backend_pid()").fetchone()
            is_direct = row == (session.info.backend_pid,)
    except psycopg.Error as error:
        return PROBLEM if REFUSED in str(error) else ""
    return "" if is_direct else PROBLEM


def check_pooler(databases: Iterable[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Check, before migrations and by `manage.py check --database default`, that no pooler is between."""
    problem = pooler_problem() if databases else ""
    return [Error(problem, id="hostaccess.E001")] if problem else []
