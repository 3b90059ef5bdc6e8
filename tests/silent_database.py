"""Reaching the test's PostgreSQL through a relay, which lets it fall silent."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from django.conf import settings
from django.db import connection, connections

from gpuplatform import embedded
from gpuplatform.bootstrap.postgres import SOCKET_NAME
from tests.relay import Relay, relaying


@contextmanager
def database_relay() -> Iterator[Relay]:
    """Relay to the test's PostgreSQL until the block ends."""
    with relaying(Path(embedded.socket_folder(settings.COMPUTE_VAR_DIR)) / SOCKET_NAME) as relay:
        yield relay


@contextmanager
def connecting_at(port: int) -> Iterator[None]:
    """Let all of this process's new connections go by a port of 127.0.0.1 until the block ends."""
    usual = {name: connection.settings_dict[name] for name in ("HOST", "PORT")}
    _forget_connections()
    connection.settings_dict.update(HOST="127.0.0.1", PORT=str(port))
    try:
        yield
    finally:
        _forget_connections()
        connection.settings_dict.update(usual)


def direct_connection() -> psycopg.Connection[tuple[object, ...]]:
    """Return a connection to the test's database that no relay is before."""
    folder = embedded.socket_folder(settings.COMPUTE_VAR_DIR)
    return psycopg.connect(host=folder, user="postgres", dbname=connection.settings_dict["NAME"], autocommit=True)


def _forget_connections() -> None:
    connections.close_all()
    connection.close_pool()  # type: ignore[attr-defined]  # a method of the backend for PostgreSQL
