"""A pooler of transactions, a real pgbouncer, is refused with the reason."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError, SystemCheckError

from hostaccess.pooler import pooler_problem
from operations import embedded
from operations.machine.system_packages import program
from tests.ports import free_port
from tests.silent_database import connecting_at
from tests.wait import SECONDS, until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.loopback]


@contextmanager
def pgbouncer(folder: Path, *further: str) -> Iterator[int]:
    """Run one in transaction mode before the test's PostgreSQL, and yield its port of 127.0.0.1."""
    port, sockets = free_port(), embedded.socket_folder(settings.COMPUTE_VAR_DIR)
    log = folder / "log"
    lines = [
        *("[databases]", f"* = host={sockets} user=postgres", "[pgbouncer]", "pool_mode = transaction"),
        *("listen_addr = 127.0.0.1", f"listen_port = {port}", "unix_socket_dir =", "auth_type = any"),
    ]
    owner = os.stat(sockets).st_uid if os.geteuid() == 0 else None  # as root it does not run
    with NamedTemporaryFile("w") as file, log.open("wb") as output:
        file.write("\n".join([*lines, *further, ""]))
        file.flush()
        os.chmod(file.name, 0o644)
        command = [str(program("pgbouncer")), file.name]
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd="/", user=owner)
        try:
            until(lambda: "process up" in log.read_text())
            yield port
        finally:
            process.terminate()
            process.wait(SECONDS)


@pytest.mark.parametrize("setting", ["", "ignore_startup_parameters = options"])
def test_pgbouncer_is_refused_with_the_reason(tmp_path: Path, setting: str) -> None:
    assert pooler_problem() == ""
    call_command("check", databases=["default"])
    with pgbouncer(tmp_path, setting) as port, connecting_at(port):
        assert "pgbouncer" in pooler_problem()
        with pytest.raises(CommandError, match="pgbouncer"):
            call_command("hostworker")
        with pytest.raises(SystemCheckError, match="pgbouncer"):
            call_command("check", databases=["default"])
