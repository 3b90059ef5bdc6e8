"""Backups: one file with the whole database, the settings, and what tells whether a restore can be right.

Files of data folders and layers of images are not in it (docs/backup.md). A restore is one transaction of the
database: where it fails, all is as before.
"""

import fcntl
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg
from django.conf import settings
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.utils import timezone
from psycopg import sql
from psycopg.pq import Conninfo

from operations.backup_files import backups_in
from operations.embedded_servers import postgres

FORMAT: Final = 1
DRAFT: Final = ".draft-"
MANIFEST: Final = "manifest.json"
DUMP: Final = "database.sql.gz"
ENV_FILE: Final = "settings.env"
BEGIN: Final = b"BEGIN;\nDROP SCHEMA public CASCADE;\nCREATE SCHEMA public;\n"
POLICY_ROLES: Final = "SELECT DISTINCT unnest(roles)::text FROM pg_policies WHERE schemaname = 'public' ORDER BY 1"
MAKE_ROLE: Final = sql.SQL("SELECT {} WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = {}) \\gexec\n")
COMMIT: Final = b"\nCOMMIT;\n"  # written last: a script that is cut off is rolled back, whoever dies
SETTING: Final = re.compile(rb"SET (\w+) = ")
HEADER_LINES: Final = (b"--", b"\\", b"SET ", b"SELECT pg_catalog.set_config(")
OTHERS: Final = (
    "SELECT application_name FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
)
LEAVING_SECONDS: Final = 5.0  # that the server takes at most to notice that a client has left
LEAVING_PAUSE_SECONDS: Final = 0.1
DEMANDING_TLS: Final = frozenset({"require", "verify-ca", "verify-full"})  # values of sslmode


class BackupError(Exception):
    """No backup could be made or restored; the message has the cause and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupManifest:
    """What a backup says of itself."""

    format: int
    made_at: str  # ISO 8601
    key: str  # a digest of SECRET_KEY, without which secrets in the database are unreadable
    migrations: list[str]  # those that were applied
    roles: list[str] = field(default_factory=list)  # which policies of tables name, and another server may lack

    @classmethod
    def now(cls) -> "BackupManifest":
        """Return that of a backup made now."""
        made_at = timezone.now().isoformat(timespec="seconds")
        with connection.cursor() as cursor:
            cursor.execute(POLICY_ROLES)
            roles = [role for (role,) in cursor.fetchall()]
        return cls(format=FORMAT, made_at=made_at, key=_key_digest(), migrations=sorted(_applied()), roles=roles)


def make(folder: Path, *, keep: int = 0) -> Path:
    """Write a backup to the folder, which is made if need be, and return its path; only its owner can read it.

    With `keep` only so many of the newest stay. Raises BackupError, also where another backup to the folder is under
    way; what a process that was killed left half-written is removed by the next.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _lock(folder):
        for half in folder.glob(f"{DRAFT}*"):
            shutil.rmtree(half)
        target = _write(folder)
        if keep:
            for old in backups_in(folder)[keep:]:
                old.unlink(missing_ok=True)
    return target


def restore(path: Path, *, replace: bool) -> BackupManifest:
    """Replace the database by that of the backup, and return what the backup says of itself.

    The tables are those of the backup's version then: migrate afterwards. Raises BackupError, with nothing changed,
    where the file is no backup, of a newer version or another SECRET_KEY, the platform runs, or, unless `replace`,
    the database has users.
    """
    try:
        with tarfile.open(path) as tar:
            manifest = _manifest_of(tar)
            settings_of_server = _check(manifest, path, replace=replace)
            dump = tar.extractfile(DUMP)
            if dump is None:
                raise BackupError(f"{path} has no {DUMP}.")
            with gzip.open(dump) as script:
                _load(script, settings_of_server, manifest.roles)
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, KeyError, EOFError, OSError) as error:
        raise BackupError(f"{path} is no whole backup: {error}") from error
    return manifest


def _write(folder: Path) -> Path:
    manifest = BackupManifest.now()
    stamp = timezone.now().strftime("%Y-%m-%dT%H%M%S.%fZ")
    target = folder / f"gpuplatform-{stamp}.tar"
    with tempfile.TemporaryDirectory(dir=folder, prefix=DRAFT) as draft:
        dump = Path(draft, DUMP)
        with gzip.open(dump, "wb") as packed:
            _run_into(packed, "pg_dump", "--no-owner", "--no-privileges")
        archive = Path(draft, "archive")
        archive.touch(mode=0o600)
        with archive.open("wb") as file, tarfile.open(fileobj=file, mode="w") as tar:
            _add(tar, MANIFEST, json.dumps(asdict(manifest), indent=1).encode())
            if (env_file := Path(settings.BASE_DIR, ".env")).exists():
                _add(tar, ENV_FILE, env_file.read_bytes())
            tar.add(dump, DUMP)
            file.flush()
            os.fsync(file.fileno())
        archive.rename(target)
    return target


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which the kernel releases with the process. Raises BackupError where another has it."""
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupError(f"Another backup to {folder} is under way.") from None
        yield


def _check(manifest: BackupManifest, path: Path, *, replace: bool) -> set[str]:
    """Return the names of the server's settings. Raises BackupError where the backup must not be restored."""
    if manifest.format != FORMAT:
        raise BackupError(f"{path} has format {manifest.format}; this version reads format {FORMAT}.")
    known = {f"{app}.{name}" for app, name in MigrationLoader(None).disk_migrations}
    if newer := sorted(set(manifest.migrations) - known):
        raise BackupError(f"{path} was made by a newer version: install that one first. Unknown here: {newer[0]}.")
    if manifest.key != _key_digest():
        raise BackupError(
            f"SECRET_KEY differs from that of the backup, whose secrets would be unreadable. Its settings are in the "
            f"file: `tar -xOf {path} {ENV_FILE} > .env`, then restore again."
        )
    with _only_connection() as only:
        others = _others(only)
        has_users = _has_users(only)
        settings_of_server = {name for (name,) in only.execute("SELECT name FROM pg_settings")}
    if others:
        names = ", ".join(sorted({name or "unnamed" for (name,) in others}))
        raise BackupError(f"The database is in use ({names}): stop the platform and its hosts first.")
    if has_users and not replace:
        raise BackupError("The database has users already; --replace deletes all of it in favour of the backup.")
    return settings_of_server


def _manifest_of(tar: tarfile.TarFile) -> BackupManifest:
    file = tar.extractfile(MANIFEST)
    try:
        values: dict[str, Any] = json.loads(file.read() if file else b"")
        return BackupManifest(**values)
    except (ValueError, TypeError) as error:
        raise BackupError(f"{MANIFEST} of the file cannot be read: {error}") from error


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = len(content), 0o600, int(timezone.now().timestamp())
    tar.addfile(member, io.BytesIO(content))


def _run_into(output: gzip.GzipFile, program: str, *options: str) -> None:
    """Run a program of PostgreSQL and write its output to a file object."""
    with _program(program, *options) as process:
        assert process.stdout is not None
        shutil.copyfileobj(process.stdout, output)


def _load(script: gzip.GzipFile, settings_of_server: set[str], roles: Iterable[str]) -> None:
    """Have psql run the script in one transaction, after everything was dropped and the missing roles were made."""
    with _program("psql", "--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--output=/dev/null") as process:
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # psql has ended, and says why
            process.stdin.write(BEGIN)
            process.stdin.writelines(_made(role) for role in roles)
            process.stdin.writelines(_header(script, settings_of_server))
            shutil.copyfileobj(script, process.stdin)
            process.stdin.write(COMMIT)
            process.stdin.close()


def _made(role: str) -> bytes:
    """Return a statement that makes a role which the server lacks."""
    statement = sql.SQL("CREATE ROLE {} NOLOGIN").format(sql.Identifier(role)).as_string()
    return MAKE_ROLE.format(statement, role).as_bytes()


def _header(script: gzip.GzipFile, settings_of_server: set[str]) -> Iterator[bytes]:
    """Yield the lines of a dump up to its first statement, but for settings that the server does not have.

    pg_dump writes those of its own version, and is often newer than the server: `transaction_timeout` is refused by
    PostgreSQL before 17.
    """
    for line in script:
        setting = SETTING.match(line)
        if setting is None or setting[1].decode() in settings_of_server:
            yield line
        if line.strip() and not line.startswith(HEADER_LINES):
            return


@contextmanager
def _program(name: str, *options: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a program of PostgreSQL on the database of the settings; raise BackupError with its words if it fails."""
    connection.ensure_connection()
    info = connection.connection.info
    command = [client_program(name, info.get_parameters().get("sslmode", "")), *options]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, env=environment_of(info), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
        )
        with process:
            yield process
            with suppress(BrokenPipeError):
                process.stdin.close()  # type: ignore[union-attr]  # it is a pipe
        if process.returncode:
            errors.seek(0)
            raise BackupError(f"{name} failed: {errors.read().decode(errors='replace').strip()[-1000:]}")


def client_program(name: str, sslmode: str) -> str:
    """Return the path of a client program of PostgreSQL. Raises BackupError where there is none that will do.

    That of the wheel is newer than most servers, as it must be, but speaks no TLS.
    """
    if sslmode not in DEMANDING_TLS:
        return str(postgres.program(name))
    if found := shutil.which(name):
        return found
    raise BackupError(
        f"DATABASE_URL demands TLS, which needs {name} of this machine, of the server's version or a newer one: "
        "install postgresql-client."
    )


def environment_of(info: psycopg.ConnectionInfo) -> dict[str, str]:
    """Return the environment with which programs of PostgreSQL connect likewise; a password is on no command line."""
    variables = {each.keyword.decode(): each.envvar.decode() for each in Conninfo.get_defaults() if each.envvar}
    variables.pop("options")  # for connections that must not wait long
    found = {variables[name]: value for name, value in info.get_parameters().items() if name in variables}
    return os.environ | found | {"PGPASSWORD": info.password or ""}


def _applied() -> set[str]:
    return {f"{app}.{name}" for app, name in MigrationLoader(connection).applied_migrations}


@contextmanager
def _only_connection() -> Iterator[psycopg.Connection]:
    """Connect to the database, without any other connection of this process: its pool is closed."""
    connection.ensure_connection()
    info = connection.connection.info
    reach = info.get_parameters() | {"password": info.password}
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]  # of PostgreSQL alone
    with psycopg.connect(**reach, autocommit=True) as only:  # a transaction would see the same clients all along
        yield only


def _others(only: psycopg.Connection) -> list[tuple[str]]:
    """Return the names of other clients of the database, after a wait for the end of connections just closed."""
    deadline = time.monotonic() + LEAVING_SECONDS
    while (others := only.execute(OTHERS).fetchall()) and time.monotonic() < deadline:
        time.sleep(LEAVING_PAUSE_SECONDS)
    return others


def _has_users(only: psycopg.Connection) -> bool:
    if only.execute("SELECT to_regclass('public.accounts_user')").fetchone() == (None,):
        return False
    return only.execute("SELECT 1 FROM accounts_user LIMIT 1").fetchone() is not None


def _key_digest() -> str:
    return hashlib.sha256(b"gpuplatform backup\0" + settings.SECRET_KEY.encode()).hexdigest()[:32]
