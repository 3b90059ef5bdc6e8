"""The processes of a platform on one machine: one code base, a role is only a command."""

import sys
from pathlib import Path
from typing import Final

from operations.machine.address import Address
from operations.supervisor.supervisor import Command

QUIET_ROOT: Final = "ignore:You're running the worker with superuser privileges"  # containers run as root too
CELERY: Final = (sys.executable, "-m", "celery", "--quiet", "-A", "gpuplatform")


def commands(
    address: Address, var_dir: Path, host_environment: dict[str, str], *, has_ssh: bool = False
) -> list[Command]:
    """Return what to run: web, scheduler, beat, host worker, image builder and, if wanted, SSH server."""
    worker = "worker -Q scheduler -n scheduler@%h --pool solo --concurrency 1 --without-gossip --without-mingle"
    ssh = Command(name="ssh", arguments=(sys.executable, "manage.py", "sshserver"), starts_last=True)
    return [
        Command(name="web", arguments=(sys.executable, "manage.py", "web", "--address", address.text)),
        Command(
            name="scheduler",
            arguments=(*CELERY, *worker.split(), "--loglevel", "INFO"),
            environment={"PYTHONWARNINGS": QUIET_ROOT},
        ),
        Command(
            name="beat",
            arguments=(*CELERY, "beat", "--schedule", str(var_dir / "celerybeat-schedule"), "--loglevel", "WARNING"),
            starts_last=True,
        ),
        Command(
            name="host",
            arguments=(sys.executable, "manage.py", "hostworker"),
            environment={"PYTHONWARNINGS": QUIET_ROOT, **host_environment},
        ),
        Command(name="images", arguments=(sys.executable, "manage.py", "imagebuilder"), starts_last=True),
        *([ssh] if has_ssh else []),
    ]
