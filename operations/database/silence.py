"""Connections to PostgreSQL that give up a server which is silent while TCP still finds it in order.

Where there are several servers, of which one takes writes, each connection begins with the one that did so last.
"""

import functools
import select
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any, Final, Self, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.rows import TupleRow

SILENCE_SECONDS: Final = 2.0  # of a query, after which its connection asks whether the server answers at all
ANSWER_SECONDS: Final = 2.0  # for an answer until a query is given up: a lost packet is sent again after one
MAX_AGE_SECONDS: Final = 0.5  # for which an answer, or its lack, counts for all threads
READ_INTERVAL_SECONDS: Final = 0.1
DEFAULT_PORT: Final = 5432
SSL_REQUEST: Final = bytes.fromhex("0000000804d2162f")  # of the protocol; answered before a client says who it is

Value = TypeVar("Value")


class DatabaseServer:
    """Whether a PostgreSQL server answers, asked once for all threads of this process that want to know.

    `is_silent` holds from the first question without an answer until the next one with an answer. While it holds,
    nobody needs to wait for the server, nor for a connection of the pool.
    """

    def __init__(self, host: str, port: int) -> None:
        """`host` is a name, an address, or the folder of a Unix socket."""
        self.is_silent = False
        self._host = host
        self._port = port
        self._lock = threading.Lock()
        self._asked_at = float("-inf")

    def is_responsive(self, within_seconds: float) -> bool:
        """Return whether it answers, or did within MAX_AGE_SECONDS; False while another thread asks a silent one."""
        if not self._lock.acquire(blocking=not self.is_silent):
            return False
        try:
            if time.monotonic() - self._asked_at > MAX_AGE_SECONDS:
                self.is_silent = not self._responds(within_seconds)
                self._asked_at = time.monotonic()
            return not self.is_silent
        finally:
            self._lock.release()

    def _responds(self, within_seconds: float) -> bool:
        """Ask whether it does TLS, which needs neither a role nor one of the server's connections."""
        try:
            with self._connected(within_seconds) as connection:
                connection.sendall(SSL_REQUEST)
                return bool(connection.recv(1))
        except OSError:
            return False

    def _connected(self, within_seconds: float) -> socket.socket:
        if not self._host.startswith("/"):
            return socket.create_connection((self._host, self._port), within_seconds)
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(within_seconds)
        try:
            connection.connect(f"{self._host}/.s.PGSQL.{self._port}")
        except OSError:
            connection.close()
            raise
        return connection


@functools.cache
def server_at(host: str, port: int) -> DatabaseServer:
    """Return the server at an address, the same one for all threads."""
    return DatabaseServer(host, port)


def server_of(parameters: Mapping[str, Any]) -> DatabaseServer | None:
    """Return the server that connections with libpq's `parameters` go to; None where libpq chooses among several."""
    host, port = str(parameters.get("host") or ""), str(parameters.get("port") or DEFAULT_PORT)
    return server_at(host, int(port)) if host and "," not in host else None


class Primary:
    """The server that took this process's last connection, so that the next one need not try others before it.

    libpq tries servers in the order of their names, and one whose machine is off costs each new connection the whole
    of its timeout.
    """

    def __init__(self) -> None:
        self._last: tuple[str, str] | None = None

    def first(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return libpq's `parameters` with this server before the others; as they are where it is none of them."""
        hosts = str(parameters.get("host") or "").split(",")
        ports = str(parameters.get("port") or DEFAULT_PORT).split(",")
        pairs = list(zip(hosts, ports if len(ports) > 1 else ports * len(hosts), strict=False))
        if len(hosts) == 1 or len(pairs) != len(hosts) or self._last not in pairs:
            return dict(parameters)
        pairs.sort(key=lambda pair: pair != self._last)
        names, numbers = (",".join(each) for each in zip(*pairs, strict=True))
        return {**parameters, "host": names, "port": numbers}

    def note(self, host: str, port: int) -> None:
        """Remember the server of a connection that was made."""
        self._last = host, str(port)


_primary: Final = Primary()


class WatchedConnection(psycopg.Connection[TupleRow]):
    """A connection whose queries may take any time as long as the server answers others.

    A frozen server, or one behind a network that drops packets, leaves a query without an answer, and neither
    keepalive nor tcp_user_timeout tells it where the kernel goes on acknowledging. After SILENCE_SECONDS the server is
    asked over a new connection; where that gets no answer within ANSWER_SECONDS either, the query ends with
    OperationalError and its connection is closed. Whether the server still commits what it was sent is open, as with
    any lost one.
    """

    @classmethod
    def connect(cls, conninfo: str = "", **parameters: Any) -> Self:
        """Connect as psycopg does, first to the server that took the last connection. Raises OperationalError."""
        connection = super().connect(conninfo, **_primary.first(parameters))
        _primary.note(connection.info.host, connection.info.port)
        return connection

    @property
    def has_unread(self) -> bool:
        """Whether the server has said something since the last query: above all that it, or the connection, ended."""
        poller = select.poll()
        if not self.closed:
            poller.register(self.fileno(), select.POLLIN)
        return self.closed or bool(poller.poll(0))

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
        if not server_at(self.info.host, self.info.port).is_responsive(ANSWER_SECONDS):
            self.close()
            raise psycopg.OperationalError("the server does not answer; the connection is closed")
