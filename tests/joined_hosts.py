"""Hosts that have joined, for tests: real database roles, Redis users and keys, dropped again at the end."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import UUID

import psycopg
from django.db import connection
from psycopg import sql

from hostaccess import services
from hostaccess.host_file import TOKEN_VARIABLE, read
from hostaccess.models import HostAccess
from hostaccess.roles import group_name
from resources.models import Installation

ROOT: Final = Path(__file__).resolve().parent.parent
NOT_OF_A_HOST: Final = {"SECRET_KEY": "", "SECRET_KEY_FALLBACKS": "", "COMPUTE_APPS_KEYS": ""}


@contextmanager
def joined_host(name: str, group: str = "default") -> Iterator[dict[str, str]]:
    """Let a host of this name join, and yield the variables that it is given; it is revoked when the block ends."""
    try:
        yield services.join(services.add(name, group).token)
    finally:
        services.revoke(name)


@contextmanager
def hosts_may_join(installation: UUID | None = None) -> Iterator[None]:
    """Revoke all hosts when the block ends, and drop their group: other tests have other installations.

    With the key of an installation the group stays for the next test, until `drop_group`: to apply all grants takes a
    second of a core.
    """
    if installation:
        Installation.objects.update_or_create(singleton=True, defaults={"key": installation})
    name = group_name()
    try:
        yield
    finally:
        for access in HostAccess.objects.all():
            services.revoke(access.name)
        if not installation:
            _drop(name)


def drop_group(installation: UUID) -> None:
    """Drop the group of hosts of the installation with this key; no-op where there is none."""
    Installation.objects.update_or_create(singleton=True, defaults={"key": installation})
    _drop(group_name())


def _drop(name: str) -> None:
    group = sql.Identifier(name)
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [name])
        if cursor.fetchone():
            cursor.execute(sql.SQL("DROP OWNED BY {group}").format(group=group).as_string(cursor.cursor))
            cursor.execute(sql.SQL("DROP ROLE {group}").format(group=group).as_string(cursor.cursor))


def connected(variables: dict[str, str]) -> psycopg.Connection[tuple[object, ...]]:
    """Return a connection to PostgreSQL with a host's credentials."""
    return psycopg.connect(variables["DATABASE_URL"], autocommit=True)


def environment(variables: dict[str, str]) -> dict[str, str]:
    """Return the environment of a host's processes: its own credentials, and none of the platform's."""
    return os.environ | NOT_OF_A_HOST | variables


def join(url: str, token: str, file: Path, **environment: str) -> dict[str, str]:
    """Run `manage.py join`, as on a machine without other settings, and return what it has written."""
    command = [sys.executable, "manage.py", "join", url, "--file", str(file)]
    environment |= {TOKEN_VARIABLE: token, "PATH": os.environ["PATH"]}
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    return read(file)
