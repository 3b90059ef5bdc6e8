"""`manage.py install web|host`: sets this machine up for good by the table of steps, or takes that back."""

import argparse
import fcntl
import getpass
import os
import re
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gpuplatform.bootstrap.production.steps import UNITS, InstallMachine, InstallStep, steps_of

LOCK: Final = Path("/run/lock/gpuplatform-install")
NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
SERVER: Final = re.compile(rf"{NAME.pattern}(:\d+)?")
NETWORK: Final = re.compile(r"[\da-f.:]+/\d{1,3}")
MAIL: Final = re.compile(r"[^\s@'\"]+@[^\s@'\"]+")
FILE: Final = re.compile(r"/[\w./-]+")
CREDENTIALS: Final = "credentials"


def main(arguments: Sequence[str]) -> None:
    """Print the plan and carry it out; end with a sentence where a step fails."""
    options = parser().parse_args(arguments)
    if options.purge and not options.uninstall:
        sys.exit("--purge goes with --uninstall.")
    steps = steps_of(options.role)
    if unknown := {*options.without, *filter(None, [options.step])} - {step.name for step in steps}:
        sys.exit(f"There is no step {', '.join(sorted(unknown))}.")
    steps = [step for step in steps if options.step in ("", step.name) and step.name not in options.without]
    machine = InstallMachine(options.role, variables(options))
    if os.geteuid() or not shutil.which("apt-get") or not Path("/run/systemd/system").is_dir():
        sys.exit("This command is for root on a Debian or Ubuntu that systemd runs; docs/install.md says what it does.")
    with LOCK.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit("Another installation is under way on this machine.")
        if options.uninstall:
            uninstall(machine, steps, is_purged=options.purge, is_plan=options.plan)
        else:
            install(machine, steps, is_plan=options.plan)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(
        prog="manage.py install", description="Set this machine up for good; what is done already is left alone."
    )
    found.add_argument("role", choices=sorted(UNITS), help="web: a server, which lends too; host: a further GPU host")
    found.add_argument("address", nargs="?", default="", help="web: name of the server, such as gpu.example.org")
    found.add_argument("--admin", default="", metavar="EMAIL", help="web: address of the first administrator")
    found.add_argument(
        "--certificate",
        nargs=2,
        default=(),
        metavar=("PEM", "KEY"),
        help="web: for *.apps. too; else by Caddy's own CA",
    )
    found.add_argument("--hosts", default="", metavar="NETWORK", help="web: where further hosts are, as 10.0.0.0/24")
    found.add_argument(
        "--join",
        nargs=2,
        default=("", ""),
        metavar=("ADDRESS", "TOKEN"),
        help="host: see add_host; with - for TOKEN it is read from the input, so that nobody else here sees it",
    )
    found.add_argument("--step", default="", help="only the step of this name")
    found.add_argument("--without", action="append", default=[], metavar="STEP", help="leave a step out, as images")
    found.add_argument("--plan", action="store_true", help="say what would be done, and do nothing")
    found.add_argument("--uninstall", action="store_true", help="take it back; settings, data and packages stay")
    found.add_argument("--purge", action="store_true", help="with --uninstall: remove settings and all data too")
    return found


def variables(options: argparse.Namespace) -> dict[str, str]:
    """Return the variables of the steps; end with a sentence where one is missing, or not of its kind."""
    address = options.address if options.role == "web" else options.join[0].removeprefix("https://").rstrip("/")
    found = {
        "ADDRESS": (address, NAME if options.role == "web" else SERVER, True),
        "ADMIN": (options.admin, MAIL, options.role == "web"),
        "CERTIFICATE": (" ".join(options.certificate), re.compile(f"{FILE.pattern} {FILE.pattern}"), False),
        "HOSTS": (options.hosts, NETWORK, False),
        "TOKEN": (token_of(options), re.compile(r"\S+"), options.role == "host" and options.step in ("", CREDENTIALS)),
    }
    for name, (value, pattern, is_needed) in found.items():
        if not (pattern.fullmatch(value) if value else options.uninstall or not is_needed):
            sys.exit(f"{name.lower()}: {value!r} will not do; see manage.py install --help")
    return {name: value for name, (value, _, _) in found.items()}


def token_of(options: argparse.Namespace) -> str:
    """Return the token of a host; "-" reads it from the input, where a step needs it."""
    given = str(options.join[1])
    if given != "-":
        return given
    if options.uninstall or options.step not in ("", CREDENTIALS):
        return ""
    return getpass.getpass("Token: ") if sys.stdin.isatty() else sys.stdin.readline().strip()


def install(machine: InstallMachine, steps: Sequence[InstallStep], *, is_plan: bool) -> None:
    """Do the steps that are not done."""
    print_plan([("done already" if is_plan and machine.has(step) else "", step) for step in steps])
    for step in () if is_plan else steps:
        if machine.has(step):
            say(f"==> {step.name}: done already")
            continue
        say(f"==> {step.name}")
        started = time.monotonic()
        if not machine.run(step.do) or (step.done and not machine.has(step)):
            sys.exit(f"The step {step.name!r} failed, see above. The same command goes on here.")
        say(f"    {step.name}: done in {time.monotonic() - started:.1f} s")


def uninstall(machine: InstallMachine, steps: Sequence[InstallStep], *, is_purged: bool, is_plan: bool) -> None:
    """Take the steps back, the last one first."""
    back = [step for step in reversed(steps) if step.undo or (is_purged and step.purge)]
    print_plan([("remove, with all data" if is_purged and step.purge else "remove", step) for step in back])
    for step in () if is_plan else back:
        say(f"==> {step.name}")
        for part in (step.undo, step.purge if is_purged else ""):
            if part and not machine.run(part):
                sys.exit(f"The step {step.name!r} could not be taken back, see above. The same command goes on here.")


def print_plan(rows: Sequence[tuple[str, InstallStep]]) -> None:
    """Print what follows."""
    say("The plan:")
    for number, (note, step) in enumerate(rows, start=1):
        say(f"  {number:2}. {step.name}: {note and f'{note}: '}{step.what}")


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
