"""Reaching the test's PostgreSQL through a relay, which lets it fall silent; and one of its own that speaks TCP."""

import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from django.conf import settings
from django.db import connection, connections

from operations import embedded
from operations.embedded_servers import postgres
from operations.embedded_servers.postgres import SOCKET_NAME
from tests.ports import free_port
from tests.relay import Relay, relaying
from tests.wait import SECONDS


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


def url_at(port: int) -> str:
    """Return the address of the test's database by a port of 127.0.0.1."""
    return f"postgresql://postgres@127.0.0.1:{port}/{connection.settings_dict['NAME']}"


def direct_connection() -> psycopg.Connection[tuple[object, ...]]:
    """Return a connection to the test's database that no relay is before."""
    folder = embedded.socket_folder(settings.COMPUTE_VAR_DIR)
    return psycopg.connect(host=folder, user="postgres", dbname=connection.settings_dict["NAME"], autocommit=True)


@contextmanager
def tcp_server(var_dir: Path) -> Iterator[int]:
    """Run a PostgreSQL of its own, and yield its port of 127.0.0.1: over a Unix socket it would miss no packets."""
    postgres.start(var_dir)
    data = (var_dir / "postgres").resolve()
    command = shlex.split((data / "postmaster.opts").read_text())
    postgres.stop(var_dir)
    port, owner = free_port(), data.stat()
    with (var_dir / "log").open("wb") as log:
        arguments = [*command, "-h", "127.0.0.1", "-p", str(port)]
        process = subprocess.Popen(arguments, user=owner.st_uid, group=owner.st_gid, cwd="/", stdout=log, stderr=log)
    try:
        yield port
    finally:
        process.terminate()
        process.wait(SECONDS)


def _forget_connections() -> None:
    connections.close_all()
    connection.close_pool()  # type: ignore[attr-defined]  # a method of the backend for PostgreSQL
