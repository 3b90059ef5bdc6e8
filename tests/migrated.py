"""The test database: migrated by one process, and restored from its dump by all others until a migration changes."""

import fcntl
import hashlib
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import django
import psycopg
from django.apps import apps
from django.conf import settings
from django.db import connection
from django.test.utils import setup_databases
from psycopg import sql

from operations import embedded
from operations.embedded_servers import postgres

VAR: Final = Path(__file__).resolve().parent.parent / "var"


def make_test_database() -> None:
    """Make the test database of this process anew, and have Django use it.

    Migrating takes eight seconds of a core, restoring less than one; processes that begin together wait for the first.
    Nothing drops the database at the end, when a thread may still be closing its connection.
    """
    name = connection.creation._get_test_db_name()  # type: ignore[attr-defined]  # as setup_databases names it
    with _lock():
        dump = _dump()
        is_known = dump.exists()
        if is_known:
            restore_migrated(name)
        setup_databases(verbosity=0, interactive=False, keepdb=is_known)
        if not is_known:
            for old in VAR.glob("migrated-*.sql"):
                old.unlink()
            draft = dump.with_suffix(".draft")
            _run("pg_dump", _url(name), f"--file={draft}")
            draft.rename(dump)
    with connection.cursor() as cursor:  # others have the same dump, and use the same engine
        cursor.execute("UPDATE resources_installation SET key = gen_random_uuid()")


def restore_migrated(name: str) -> str:
    """Make a database of this name anew, as migrating leaves it, beside that of this process; return its URL."""
    _create_empty(name)
    _restore(_url(name))
    return _url(name)


def begin_platform(var_dir: Path) -> bool:
    """Start the PostgreSQL of a new platform in `var_dir` with all tables, and an installation key of its own.

    Return whether that was possible: without a dump, or before Django is set up, the platform has to migrate.
    """
    if not apps.ready:
        return False
    with _lock():
        if not _dump().exists():
            return False
        postgres.start(var_dir)
        _restore_with_new_key(embedded.database_url(var_dir))
    return True


def fill_database(url: str) -> bool:
    """Give an empty database all tables, and an installation key of its own; return as `begin_platform` does."""
    if "sslmode=" in url:
        return False  # the programs of the embedded server speak no TLS
    with _lock():
        if not (apps.ready and _dump().exists()):
            return False
        _restore_with_new_key(url)
    return True


def _restore_with_new_key(url: str) -> None:
    _restore(url)
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE resources_installation SET key = gen_random_uuid()")


def _restore(url: str) -> None:
    _run("psql", url, "--quiet", "--set=ON_ERROR_STOP=1", f"--file={_dump()}")


def _dump() -> Path:
    return VAR / f"migrated-{_version()}.sql"


def _version() -> str:
    """Return a digest of everything that decides what migrating makes."""
    digest = hashlib.sha256(django.__version__.encode())
    for app in sorted(apps.get_app_configs(), key=lambda app: app.label):
        for path in sorted(Path(app.path, "migrations").glob("*.py")):
            digest.update(f"{app.label} {path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _create_empty(name: str) -> None:
    with psycopg.connect(_url("postgres"), autocommit=True) as server:
        server.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
        server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))


def _run(program: str, url: str, *options: str) -> None:
    """Run a program of PostgreSQL on the database at `url`; raise AssertionError with its output where it fails."""
    done = subprocess.run(
        [postgres.program(program), f"--dbname={url}", *options], capture_output=True, text=True, check=False
    )
    assert not done.returncode, f"{program}: {done.stderr}"


def _url(database: str) -> str:
    return embedded.database_url(settings.COMPUTE_VAR_DIR).replace(f"/{postgres.DATABASE}?", f"/{database}?", 1)


@contextmanager
def _lock() -> Iterator[None]:
    """Hold the lock of the dump."""
    VAR.mkdir(exist_ok=True)
    with (VAR / "migrated.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
