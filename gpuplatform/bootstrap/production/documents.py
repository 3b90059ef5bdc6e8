"""Writes what is made of the table of steps: their page in docs/ and the role of Ansible. Run as a module."""

from pathlib import Path
from textwrap import indent
from typing import Any, Final

import yaml

from gpuplatform.bootstrap.production.install import CREDENTIALS
from gpuplatform.bootstrap.production.steps import CODE, PRELUDE, UNITS, InstallStep, steps_of, units

MADE_BY: Final = "python -m gpuplatform.bootstrap.production.documents"
HEADING: Final = f"""\
# What installing does

The commands of each step of [`gpuplatform-manage install`](install.md), in order, to read, or to do by hand. They are
run as root in `/usr/lib/gpuplatform` by `sh -eu`, after

{indent(PRELUDE, "    ")}
*Not needed if* says when a step is left out. `ADDRESS`, `ADMIN`, `CERTIFICATE`, `HOSTS` and `TOKEN` are what the
command line says, `UNITS` the role's units. This page is made of the table that the command reads (`{MADE_BY}`).
"""
ROLES: Final = {"web": "Server", "host": "Further host"}
COMMANDS: Final = {
    "web": "web {{ gpuplatform_address }} --admin {{ gpuplatform_admin }} {{ gpuplatform_options | default('') }}",
    "host": "host --join {{ gpuplatform_address }} - {{ gpuplatform_options | default('') }}",
}
PACKAGE: Final[list[dict[str, Any]]] = [
    {
        "name": "Have the package there",
        "ansible.builtin.copy": {
            "src": "{{ gpuplatform_package }}",
            "dest": "/var/cache/gpuplatform.deb",
            "mode": "0644",
        },
    },
    {"name": "Install the package", "ansible.builtin.apt": {"deb": "/var/cache/gpuplatform.deb"}},
]


def page() -> str:
    """Return the page of all steps."""
    return "\n".join([HEADING, *(_section(role) for role in UNITS)])


def tasks() -> str:
    """Return the tasks of the role of Ansible."""
    found = [*PACKAGE, *(_task(role, step) for role in UNITS for step in steps_of(role))]
    heading = f"# Made by `{MADE_BY}` of the table of steps; docs/install.md says how it is used.\n"
    return heading + str(yaml.safe_dump(found, sort_keys=False, width=1000))


def _section(role: str) -> str:
    parts = [f"## {ROLES[role]}\n\n`UNITS`: `{units(role)}`\n"]
    for number, step in enumerate(steps_of(role), start=1):
        parts.append(f"{number}. **{step.name}**: {step.what}.\n\n{indent(step.do, ' ' * 7)}")
        for heading, shell in (("Not needed if", step.done), ("Taken back by", step.undo), ("Purged by", step.purge)):
            if shell:
                parts.append(f"   {heading}\n\n{indent(shell.rstrip() + chr(10), ' ' * 7)}")
    return "\n".join(parts)


def _task(role: str, step: InstallStep) -> dict[str, Any]:
    command: dict[str, Any] = {"cmd": f"gpuplatform-manage install {COMMANDS[role]} --step {step.name}"}
    is_secret = step.name == CREDENTIALS
    return {
        "name": f"{step.name}: {step.what}",
        "ansible.builtin.command": command | ({"stdin": "{{ gpuplatform_token }}"} if is_secret else {}),
        "register": "gpuplatform_step",
        "changed_when": "'done already' not in gpuplatform_step.stdout" if step.done else "false",
        "when": f"gpuplatform_role == '{role}'",
        **({"no_log": True} if is_secret else {}),
    }


FILES: Final = {"docs/install-steps.md": page, "deploy/ansible/roles/gpuplatform/tasks/main.yml": tasks}

if __name__ == "__main__":
    for name, text in FILES.items():
        path = Path(CODE, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text())
