"""Refuses poolers of transactions between a process and PostgreSQL: locks of a connection would lock nothing there."""

from typing import Final

from django.db import connection

# An option of settings.DATABASES, and how PostgreSQL tells it; where it is not in force, somebody between dropped it.
OPTION: Final = "lock_timeout=60s"
IN_FORCE: Final = "1min"
PROBLEM: Final = (
    "The options of connections to PostgreSQL are not in force, so a connection pooler such as pgbouncer stands "
    "between and drops them. Advisory locks belong to a connection, and do not hold where transactions share one: set "
    "DATABASE_URL to the address of PostgreSQL itself."
)


def pooler_problem() -> str:
    """Return why the connection to PostgreSQL is of no use; "" where it is what it should be. One query.

    A pooler that does not drop the options refuses the connection itself ("unsupported startup parameter").
    """
    if OPTION not in connection.settings_dict["OPTIONS"].get("options", ""):
        return ""  # DATABASE_URL has options of its own
    with connection.cursor() as cursor:
        cursor.execute("SHOW lock_timeout")
        (found,) = cursor.fetchone()
    return "" if found == IN_FORCE else PROBLEM
