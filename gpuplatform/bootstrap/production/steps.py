"""The table of steps, and how one is run."""

import os
import subprocess
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

CODE: Final = Path(__file__).resolve().parents[3]
TABLE: Final = Path(__file__).with_name("steps.toml")
SERVER_UNITS: Final = ("web", "appproxy", "scheduler", "beat", "images", "ssh", "host")
UNITS: Final = {"web": SERVER_UNITS, "host": ("host", "gateway")}
ADMIN_FOLDERS: Final = "/usr/local/sbin:/usr/sbin:/sbin"
PRELUDE: Final = """\
manage() { runuser -u gpuplatform -- env HOME=/var/lib/gpuplatform .venv/bin/python manage.py "$@"; }
random() { openssl rand -hex 24; }
fingerprint() { openssl x509 -noout -fingerprint "$@"; }
is_served() {
    at="-connect 127.0.0.1:443 -servername $ADDRESS"
    served=$(timeout 10 openssl s_client $at </dev/null 2>/dev/null | fingerprint)
    [ -n "$served" ] && [ "$served" = "$(fingerprint -in "${CERTIFICATE% *}")" ]
}
"""


@dataclass(frozen=True, slots=True)
class InstallStep:
    """A step of setting up a machine; the parts are shell."""

    name: str
    what: str
    roles: list[str]
    do: str
    done: str = ""
    undo: str = ""
    purge: str = ""


@dataclass(frozen=True, slots=True)
class InstallMachine:
    """This machine, in a role, with what the command line says of it as variables."""

    role: str
    variables: Mapping[str, str] = field(default_factory=dict)

    def run(self, shell: str, *, is_quiet: bool = False) -> bool:
        """Run a part of a step and return whether it succeeded. Its output is shown unless `is_quiet`."""
        output = subprocess.DEVNULL if is_quiet else None
        path = f"{os.environ.get('PATH', os.defpath)}:{ADMIN_FOLDERS}"
        environment = {**os.environ, "PATH": path, "LC_ALL": "C.UTF-8", "UNITS": units(self.role), **self.variables}
        command = ["sh", "-euc", PRELUDE + shell]
        done = subprocess.run(
            command, cwd=CODE, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False
        )
        return done.returncode == 0

    def has(self, step: InstallStep) -> bool:
        """Return whether the step is done."""
        return bool(step.done) and self.run(step.done, is_quiet=True)


def units(role: str) -> str:
    """Return the names of the role's units, with spaces between."""
    return " ".join(f"gpuplatform-{name}" for name in UNITS[role])


def steps_of(role: str) -> list[InstallStep]:
    """Return the steps of a role, in order."""
    rows = tomllib.loads(TABLE.read_text())["steps"]
    return [step for step in (InstallStep(**row) for row in rows) if role in step.roles]
