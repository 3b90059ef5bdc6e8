"""Looks the pinned packages up among known vulnerabilities: Python's by pip-audit, the browser's by `npm audit`.

Ends with 1 where one is known, and with `--report` never: an advisory is published on a day that nobody chose, and is
no fault of the commit that is being checked. A database that cannot be reached is said and passes: not every network
has one.
"""

import json
import os
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[3]
TOOL: Final = "pip-audit==2.10.1"
FOLDER: Final = ROOT / "var" / "audit"  # an environment of its own: its dependencies would be among those looked up
PINS: Final = ROOT / "constraints.txt"
NODE: Final = ROOT / ".venv" / "bin" / "node-bin"  # where the setup has installed Node, if it had to
TIMEOUT_SECONDS: Final = 300


class AuditUnavailableError(Exception):
    """No database of vulnerabilities could be asked; the message says why."""


REPORT: Final = "--report"


def main(arguments: Sequence[str] = ()) -> int:
    """Return the exit status."""
    sys.stdout.write("==> Known vulnerabilities of dependencies\n")
    found: list[str] = []
    for name, audit in (("Python", _python_packages), ("npm", _npm_packages)):
        try:
            found += audit()
        except AuditUnavailableError as reason:
            sys.stdout.write(f"    {name} packages were not looked up: {reason}\n")
    for each in found:
        sys.stderr.write(f"    {each}\n")
    return 1 if found and REPORT not in arguments else 0


def python_findings(report: Mapping[str, Any]) -> list[str]:
    """Return a line for each vulnerability that pip-audit reports. Raises AuditUnavailableError."""
    if "dependencies" not in report:
        raise AuditUnavailableError("pip-audit did not report")
    packages = report["dependencies"]
    skipped = [str(package["skip_reason"]) for package in packages if "skip_reason" in package]
    if packages and len(skipped) == len(packages):
        raise AuditUnavailableError(skipped[0])
    return [
        f"{package['name']} {package['version']}: {flaw['id']}, fixed in {flaw['fix_versions'] or 'no version'}"
        for package in packages
        for flaw in package.get("vulns", ())
    ]


def npm_findings(report: Mapping[str, Any]) -> list[str]:
    """Return a line for each vulnerability that `npm audit` reports. Raises AuditUnavailableError."""
    if "vulnerabilities" not in report:
        raise AuditUnavailableError(str(report.get("message") or report.get("error") or "no answer"))
    return [
        f"{name} {flaw.get('range', '')}: {flaw.get('severity', 'unknown severity')}"
        for name, flaw in report["vulnerabilities"].items()
    ]


def _python_packages() -> list[str]:
    pins = [line for line in PINS.read_text().splitlines() if "==" in line]
    tool = FOLDER / "bin" / "pip-audit"
    if not tool.exists():
        venv.create(FOLDER, with_pip=True)
        _run(str(FOLDER / "bin" / "pip"), "install", "--quiet", TOOL)
    for asked in (pins[:1], pins):  # one first: where it cannot be looked up, the others are not asked for
        listed = FOLDER / "pins.txt"
        listed.write_text("\n".join(asked) + "\n")
        options = ("--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json")
        found = python_findings(_run(str(tool), "--requirement", str(listed), *options))
    return found


def _npm_packages() -> list[str]:
    return npm_findings(_run("npm", "audit", "--omit=dev", "--json"))


def _run(*command: str) -> Mapping[str, Any]:
    """Return the JSON object that the command prints, or {}. Raises AuditUnavailableError if it cannot run."""
    environment = os.environ | {"PATH": f"{NODE}:{os.environ['PATH']}"}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AuditUnavailableError(str(error)) from error
    try:
        report = json.loads(done.stdout)
    except ValueError:
        return {}
    return report if isinstance(report, dict) else {}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
