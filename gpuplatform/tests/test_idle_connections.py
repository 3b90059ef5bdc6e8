"""A connection of the pool that the server has closed meanwhile fails no query, and one that is in order costs none."""

from collections.abc import Iterator

import psycopg
import pytest
from django.db import connection

from tests.silent_database import direct_connection
from tests.wait import until

pytestmark = pytest.mark.django_db(transaction=True)


def backend() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


@pytest.fixture
def another() -> Iterator[psycopg.Connection]:
    with direct_connection() as session:
        yield session


def test_connections_that_the_server_closed_are_passed_over(another: psycopg.Connection) -> None:
    before = backend()
    connection.close()
    others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    another.execute(f"SELECT pg_terminate_backend(pid) {others}")
    until(lambda: not another.execute(f"SELECT pid {others}").fetchall())
    assert backend() != before


def test_taking_an_idle_connection_costs_no_query(another: psycopg.Connection) -> None:
    backend()
    connection.close()
    connection.ensure_connection()
    last = another.execute(
        "SELECT query FROM pg_stat_activity WHERE pid = %s", [connection.connection.info.backend_pid]
    )
    assert last.fetchone() != ("",)  # which is what Django's health checks send
