"""Each process refuses, in one sentence, a database that two later versions have migrated."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import psycopg
import pytest
from django.conf import settings
from django.core.management.base import BaseCommand, SystemCheckError

from gpuplatform import celery
from resources import versions
from tests.migrated import restore_migrated
from tests.ports import free_port
from tests.wait import SECONDS

NOTE = """COMMENT ON TABLE django_migrations IS '{"last": [], "needed": ["resources.9000_next"]}'"""
SENTENCE = "The database is of a newer version, which this one cannot work with: it does not know resources.9000_next."
COMMANDS = (
    "manage.py web --address 127.0.0.1:{port} --processes 1",
    "manage.py web --address 127.0.0.1:{port} --processes 2",
    "manage.py appproxy --address 127.0.0.1:{port}",
    "manage.py gateway",
    "manage.py hostworker",
    "manage.py sshserver",
    "manage.py imagebuilder",
    "manage.py migrate",
    "manage.py democluster",
    "-m celery --quiet -A gpuplatform worker -Q scheduler --pool solo",
    "-m celery --quiet -A gpuplatform beat --schedule {folder}/schedule",
)


@pytest.fixture(scope="module")
def url(django_db_setup: None) -> str:
    url = restore_migrated("older_version")
    with psycopg.connect(url) as session:
        session.execute(NOTE)
    return url


@pytest.mark.long(minutes=1)
@pytest.mark.loopback
@pytest.mark.parametrize("command", COMMANDS)
def test_a_process_says_why_it_does_not_start(command: str, url: str, tmp_path: Path) -> None:
    arguments = command.format(port=free_port(), folder=tmp_path).split()
    own = {
        "DATABASE_URL": url,
        "COMPUTE_VAR_DIR": str(tmp_path),
        "COMPUTE_GATEWAY_ADDRESS": f"127.0.0.1:{free_port()}",
        "COMPUTE_HTTP_ADDRESS": f"127.0.0.1:{free_port()}",
        "COMPUTE_SSH_ADDRESS": f"127.0.0.1:{free_port()}",
    }
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=settings.BASE_DIR,
        env=os.environ | own,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode
    assert SENTENCE in done.stderr
    assert versions.ADVICE in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["gateway", "hostworker", "sshserver", "imagebuilder"])
def test_the_version_is_checked_by(command: str) -> None:
    package = {"hostworker": "hostworker", "imagebuilder": "resources"}.get(command, "gpuplatform")
    module = import_module(f"{package}.management.commands.{command}")
    assert versions.VERSION_TAG in module.Command.requires_system_checks


def test_the_scheduler_ends_where_a_check_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise SystemCheckError(SENTENCE)

    monkeypatch.setattr(BaseCommand, "check", refuse)
    with pytest.raises(SystemExit, match="newer version"):
        celery._require_known_database()
