"""Connections to PostgreSQL that give up a server which is silent while TCP still finds it in order."""

import threading
import time
from typing import Final, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

SILENCE_SECONDS: Final = 2.0  # of a query, after which its connection asks whether the server answers at all
CONNECT_SECONDS: Final = 2  # libpq's least
KEPT_SECONDS: Final = 1.0
REFUSED: Final = "FATAL"  # how a server begins that answers, and does not take one more connection
READ_INTERVAL_SECONDS: Final = 0.1

Value = TypeVar("Value")


class WatchedConnection(psycopg.Connection[TupleRow]):
    """A connection whose queries may take any time as long as the server answers others.

    A frozen server, or one behind a network that drops packets, leaves a query without an answer, and neither
    keepalive nor tcp_user_timeout tells it where the kernel goes on acknowledging. After SILENCE_SECONDS a new
    connection is tried; where that gets no answer within CONNECT_SECONDS either, the query ends with OperationalError
    and its connection is closed. Whether the server still commits what it was sent is open, as with any lost one.
    """

    def wait(self, gen: PQGen[Value], interval: float = READ_INTERVAL_SECONDS, timeout: float | None = None) -> Value:
        """Wait as psycopg does, for a query at a server that answers."""
        return super().wait(self._watched(gen), interval, timeout)

    def _watched(self, query: PQGen[Value]) -> PQGen[Value]:
        """Drive a query, and look after the server whenever nothing has come for SILENCE_SECONDS."""
        silent_since = time.monotonic()
        try:
            awaited = next(query)
            while True:
                ready = (yield awaited) or 0  # psycopg resumes an interrupted query with None
                if ready:
                    silent_since = time.monotonic()
                elif time.monotonic() - silent_since > SILENCE_SECONDS:
                    self._demand_answer()
                    silent_since = time.monotonic()
                awaited = query.send(ready)
        except StopIteration as end:
            value: Value = end.value
            return value

    def _demand_answer(self) -> None:
        """Raise OperationalError where the server does not answer a new connection; this one is then closed."""
        password = {"password": self.info.password} if self.info.password else {}
        parameters: dict[str, str | int | None] = {**self.info.get_parameters(), **password}
        if not _sign_of_life.seen(make_conninfo("", **parameters | {"connect_timeout": CONNECT_SECONDS})):
            self.close()
            raise psycopg.OperationalError("the server does not answer; the connection is closed")


class _SignOfLife:
    """Whether a server answers, asked once for all threads that want to know."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: dict[str, tuple[float, bool]] = {}

    def seen(self, conninfo: str) -> bool:
        """Return whether it answered within CONNECT_SECONDS, at most KEPT_SECONDS ago."""
        with self._lock:
            asked_at, answered = self._answers.get(conninfo, (float("-inf"), False))
            if time.monotonic() - asked_at > KEPT_SECONDS:
                answered = _answers(conninfo)
                self._answers[conninfo] = (time.monotonic(), answered)
            return answered


def _answers(conninfo: str) -> bool:
    try:
        psycopg.connect(conninfo).close()
    except psycopg.Error as error:
        return REFUSED in str(error)
    return True


_sign_of_life: Final = _SignOfLife()
