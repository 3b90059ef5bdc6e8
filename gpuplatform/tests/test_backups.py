"""Backups: restored as they were, whole or not at all, and never over something by mistake."""

import fcntl
import gzip
import io
import os
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from django.conf import settings

from operations import backup_files, backups, embedded
from operations.embedded_servers import postgres
from tests.migrated import restore_migrated
from tests.ports import process_number

Command = Callable[..., "subprocess.CompletedProcess[str]"]
NAME = "backed_up"
NEWEST_SETTING = b"\nSET transaction_timeout = 0;\n"  # pg_dump writes it for servers that refuse it, too
UNKNOWN_SETTING = b"SET setting_of_a_later_version = 0;\n"
NO_REDIS = "redis://127.0.0.1:1/0"  # nothing of it is in a backup


@pytest.fixture
def database(django_db_setup: None) -> str:
    """The URL of a database of its own, with a row."""
    url = restore_migrated(NAME)
    add_row(url, "before")
    return url


@pytest.fixture
def manage(database: str, tmp_path: Path) -> Command:
    """Runs a management command on that database, without any Redis."""

    def run(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        own = {"DATABASE_URL": database, "REDIS_URL": NO_REDIS, "COMPUTE_VAR_DIR": str(tmp_path / "var")}
        environment = os.environ | own | variables
        command = [sys.executable, "manage.py", *arguments]
        return subprocess.run(
            command, cwd=settings.BASE_DIR, env=environment, capture_output=True, text=True, check=False
        )

    return run


def add_row(url: str, name: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("INSERT INTO auth_group (name) VALUES (%s)", [name])


def rows(url: str) -> set[str]:
    with psycopg.connect(url) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM auth_group")}


@pytest.fixture
def backup(manage: Command, tmp_path: Path) -> Path:
    done = manage("backup", str(tmp_path / "backups"))
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def test_a_backup_is_made_and_restored_without_redis(
    database: str, manage: Command, backup: Path, tmp_path: Path
) -> None:
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    add_row(database, "after")
    made = manage(
        "createsuperuser", "--noinput", "--email", "root@example.org", DJANGO_SUPERUSER_PASSWORD="a long password"
    )
    assert made.returncode == 0, made.stderr
    refused = manage("restore", str(backup))
    assert (refused.returncode, "has users already" in refused.stderr) == (1, True), refused.stderr
    assert rows(database) == {"before", "after"}
    restored = manage("restore", str(backup), "--replace")
    assert restored.returncode == 0, restored.stderr
    assert rows(database) == {"before"}
    with psycopg.connect(database) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    of_newer_server = changed_dump(backup, tmp_path / "newer.tar", NEWEST_SETTING, NEWEST_SETTING + UNKNOWN_SETTING)
    restored = manage("restore", str(of_newer_server))  # on an empty database
    assert restored.returncode == 0, restored.stderr
    assert rows(database) == {"before"}


def test_a_server_without_the_roles_of_hosts_gets_them(database: str, manage: Command, tmp_path: Path) -> None:
    role = f"hosts of {process_number()}"  # roles belong to the whole server
    statements = (f'CREATE ROLE "{role}" NOLOGIN', f'CREATE POLICY own ON auth_group TO "{role}" USING (true)')
    try:
        with psycopg.connect(database) as connection:
            for statement in statements:
                connection.execute(statement)
        backup = manage("backup", str(tmp_path / "backups")).stdout.strip()
        with psycopg.connect(database) as connection:
            connection.execute("DROP POLICY own ON auth_group")
            connection.execute(f'DROP ROLE "{role}"')
        for _ in range(2):  # once without the role, once with it
            restored = manage("restore", backup, "--replace")
            assert restored.returncode == 0, restored.stderr
        with psycopg.connect(database) as connection:
            found = connection.execute("SELECT roles::text[] FROM pg_policies WHERE policyname = 'own'").fetchall()
        assert found == [([role],)]
    finally:
        with psycopg.connect(database) as connection:
            connection.execute("DROP POLICY IF EXISTS own ON auth_group")
            connection.execute(f'DROP ROLE IF EXISTS "{role}"')


@pytest.mark.long
def test_what_cannot_be_restored_changes_nothing(database: str, manage: Command, backup: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.tar"
    cut.write_bytes(backup.read_bytes()[: backup.stat().st_size * 2 // 3])
    newer = changed(
        backup, tmp_path / "newer.tar", backups.MANIFEST, b'"accounts.0001_initial"', b'"accounts.9999_later"'
    )
    broken = with_dump(backup, tmp_path / "broken.tar", b"DROP TABLE accounts_user CASCADE;\nSELECT nonsense;\n")
    damaged = damaged_dump(backup, tmp_path / "damaged.tar")
    text = tmp_path / "text.tar"
    text.write_text("no archive")
    for path, problem in (
        (cut, "no whole backup"),
        (newer, "made by a newer version"),
        (broken, "psql failed"),
        (damaged, "no whole backup"),
        (text, "no whole backup"),
        (tmp_path / "nothing.tar", "no whole backup"),
    ):
        refused = manage("restore", str(path), "--replace")
        assert (refused.returncode, problem in refused.stderr) == (1, True), refused.stderr
    other_key = manage("restore", str(backup), "--replace", SECRET_KEY="another-" + "0" * 50)
    assert "SECRET_KEY differs" in other_key.stderr
    with psycopg.connect(database):
        assert "The database is in use" in manage("restore", str(backup), "--replace").stderr
    assert rows(database) == {"before"}


@pytest.mark.django_db
def test_only_the_newest_are_kept_and_made_when_due(tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    half = folder / f"{backups.DRAFT}killed"
    half.mkdir(parents=True)
    made = [backups.make(folder, keep=2) for _ in range(3)]
    assert backup_files.backups_in(folder) == [made[2], made[1]]
    assert set(folder.iterdir()) == {*made[1:], folder / ".lock"}  # nothing half-written is left
    now = datetime.fromtimestamp(made[2].stat().st_mtime, UTC)
    assert backup_files.is_due(tmp_path / "empty", 24, now)
    assert not backup_files.is_due(folder, 24, now + timedelta(hours=23))
    assert backup_files.is_due(folder, 24, now + timedelta(hours=25))
    assert not backup_files.is_due(folder, 0, now + timedelta(days=99))


@pytest.mark.django_db
def test_a_second_backup_at_once_is_refused(tmp_path: Path) -> None:
    with (tmp_path / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(backups.BackupError, match="under way"):
            backups.make(tmp_path)


def test_programs_connect_as_the_platform_does(django_db_setup: None) -> None:
    url = embedded.database_url(settings.COMPUTE_VAR_DIR).replace("/gpuplatform?", "/postgres?")
    with psycopg.connect(f"{url}&sslmode=allow&sslrootcert=/etc/ssl/lab.pem&password=secret") as connection:
        environment = backups.environment_of(connection.info)
    found = {name: environment[name] for name in ("PGDATABASE", "PGSSLMODE", "PGSSLROOTCERT", "PGPASSWORD")}
    assert found == {
        "PGDATABASE": "postgres",
        "PGSSLMODE": "allow",
        "PGSSLROOTCERT": "/etc/ssl/lab.pem",
        "PGPASSWORD": "secret",
    }


def test_a_server_that_demands_tls_needs_programs_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "pg_dump"
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(backups.BackupError, match="install postgresql-client"):
        backups.client_program("pg_dump", "verify-full")
    own.touch(mode=0o700)
    assert backups.client_program("pg_dump", "verify-full") == str(own)
    assert backups.client_program("pg_dump", "prefer") == str(postgres.program("pg_dump"))


def members(path: Path) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(path) as tar:
        for member in tar:
            file = tar.extractfile(member)
            assert file is not None
            yield member, file.read()


def changed(path: Path, target: Path, name: str, old: bytes, new: bytes) -> Path:
    """Return a copy of the backup with other words in one of its files."""
    with tarfile.open(target, "w") as tar:
        for member, content in members(path):
            content = content.replace(old, new) if member.name == name else content
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return target


def with_dump(path: Path, target: Path, script: bytes) -> Path:
    """Return a copy of the backup with another script in place of the database."""
    with tarfile.open(target, "w") as tar:
        for member, content in members(path):
            content = gzip.compress(script) if member.name == backups.DUMP else content
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return target


def changed_dump(path: Path, target: Path, old: bytes, new: bytes) -> Path:
    """Return a copy of the backup with other words in its dump, where they stand."""
    script = next(gzip.decompress(content) for member, content in members(path) if member.name == backups.DUMP)
    assert old in script
    return with_dump(path, target, script.replace(old, new, 1))


def damaged_dump(path: Path, target: Path) -> Path:
    """Return a copy of the backup whose dump cannot be unpacked."""
    no_block = b"\xff" * 64
    with tarfile.open(target, "w") as tar:
        for member, content in members(path):
            if member.name == backups.DUMP:
                content = gzip.compress(b"")[:10] + no_block
                member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return target
