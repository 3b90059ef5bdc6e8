"""Real host workers as processes of their own, on the database and broker of the test run."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings
from django.db import connection

from hostworker.enforcement.arbiter import Arbiter
from hostworker.enforcement.arbiter_folder import ArbiterFolder
from hostworker.enforcement.programs import Programs
from resources.models import Host, HostStatus
from tests.wait import SECONDS, until

ROOT = Path(__file__).resolve().parent.parent


def database_url() -> str:
    """Return the URL of the test database, for another process."""
    config = connection.settings_dict
    return f"postgresql://{config['USER']}@/{config['NAME']}?host={config['OPTIONS'].get('host') or config['HOST']}"


@contextmanager
def host_worker(name: str, *, on: Sequence[str] = (), **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `manage.py hostworker` for the host `name` until the block ends; `environment` replaces settings.

    `on` are words before the command that run it on another machine.
    """
    arbiter = Path(settings.COMPUTE_VAR_DIR) / "arbiter" / name
    variables = os.environ | {
        "DATABASE_URL": database_url(),
        "COMPUTE_VAR_DIR": str(settings.COMPUTE_VAR_DIR),
        "COMPUTE_ARBITER_DIR": str(arbiter),
        "COMPUTE_HOST_NAME": name,
        "COMPUTE_RUNTIME": "hostworker.runtime.docker.DockerRuntime",
    }
    process = subprocess.Popen(
        [*on, sys.executable, "manage.py", "hostworker"], cwd=ROOT, env=variables | environment, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(SECONDS)
        end_arbiter(arbiter)


def end_arbiter(folder: Path) -> None:
    """End the arbiter of this folder, which outlives its host worker, and remove the folder."""
    arbiter = Arbiter(Programs(build=folder, store=folder), ArbiterFolder(folder))
    for key in sorted(arbiter.folder.keys()):
        arbiter.folder.discard(key)
    arbiter.end()


@contextmanager
def ssh_server(port: int, host_name: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `manage.py sshserver` at this port of this machine until the block ends; `environment` replaces settings."""
    variables = os.environ | {
        "DATABASE_URL": database_url(),
        "COMPUTE_VAR_DIR": str(settings.COMPUTE_VAR_DIR),
        "COMPUTE_HOST_NAME": host_name,
        "COMPUTE_SSH_ADDRESS": f"127.0.0.1:{port}",
    }
    process = subprocess.Popen(
        [sys.executable, "manage.py", "sshserver"], cwd=ROOT, env=variables | environment, start_new_session=True
    )
    try:
        until(lambda: process.poll() is not None or is_listening(port))
        assert process.poll() is None, "the SSH server did not come up"
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(SECONDS)


def is_listening(port: int) -> bool:
    """Return whether something of this machine accepts connections at the port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def is_ready(name: str) -> bool:
    """Return whether the host has registered and reconciled."""
    return Host.objects.filter(name=name, status=HostStatus.READY).exists()


def wait_until_ready(name: str) -> None:
    """Wait for the host to take sessions."""
    until(lambda: is_ready(name))
