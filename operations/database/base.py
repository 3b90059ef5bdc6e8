"""The database backend, in the module where Django looks for it."""

import time
from typing import Any, Final

import psycopg
from django.db.backends.postgresql import base
from psycopg.pq import TransactionStatus

from operations.database.silence import server_of
from resources.clock import shared_clock

ANSWER_SECONDS: Final = 1.0  # for an answer of a server that was silent a moment ago
CAN_READ: Final = (TransactionStatus.IDLE, TransactionStatus.INTRANS)


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's, which takes no connection of the pool while the server is silent.

    Each of them would have to be found dead, and a new one waited for, by every request and again by each middleware
    that asks for the login session.
    """

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """Return a connection of the pool. Raises OperationalError."""
        server = server_of(conn_params)
        if server and server.is_silent and not server.is_responsive(ANSWER_SECONDS):
            raise psycopg.OperationalError("the server does not answer")
        try:
            return self._usable_connection(conn_params)
        except psycopg.OperationalError:
            if server:
                server.is_responsive(ANSWER_SECONDS)  # the others need not wait as long
            raise

    def _usable_connection(self, conn_params: dict[str, Any]) -> Any:
        """Return a connection that the server has not closed, as a restart does; no query where it said nothing.

        Django's own health checks ask the server by an empty query each time that a connection is taken.
        """
        while True:
            connection = super().get_new_connection(conn_params)
            if not self.pool or not connection.has_unread:
                return connection
            try:
                self.pool.check_connection(connection)
            except psycopg.OperationalError:
                self.pool.putconn(connection)  # which drops it, as it is closed
            else:
                return connection

    def _configure_connection(self, connection: psycopg.Connection[Any]) -> bool:
        """Set up a new connection, and read the server's clock by it; return whether there is something to commit."""
        super()._configure_connection(connection)  # type: ignore[misc]  # the stubs lack it
        _read_clock(connection)
        return True

    def create_cursor(self, name: str | None = None) -> Any:
        """Return a cursor; before that read the server's clock again where that is due."""
        if shared_clock.is_doubtful() and self.connection.info.transaction_status in CAN_READ:
            _read_clock(self.connection)
        return super().create_cursor(name)


def _read_clock(connection: psycopg.Connection[Any]) -> None:
    asked_at = time.monotonic()
    row = connection.execute("SELECT clock_timestamp()").fetchone()
    if row:
        shared_clock.note(row[0], asked_at)
