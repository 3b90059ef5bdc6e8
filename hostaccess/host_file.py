"""`manage.py join`: exchanges a token for this machine's credentials and writes them beside manage.py.

Standard library only: before it has joined, a machine has no settings with which Django would start.
"""

import argparse
import ipaddress
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

PATH: Final = "/api/v1/hosts/join/"
ROOT: Final = Path(__file__).resolve().parent.parent
TIMEOUT_SECONDS: Final = 120
TOKEN_VARIABLE: Final = "GPUPLATFORM_JOIN_TOKEN"  # noqa: S105  # a name
HEADING: Final = """# Written by `manage.py join`: this host's own credentials. Do not copy them to another machine.
# What else differs from the defaults is set in .env beside this file; see docs/hosts.md.
"""


class JoinError(Exception):
    """Joining failed; the message says why."""


def main(arguments: Sequence[str], target: Path) -> None:
    """Join as the command line says, and write the credentials to `target`; end with a sentence where that fails."""
    parser = argparse.ArgumentParser(prog="manage.py join", description="Let this machine join a platform as a host.")
    parser.add_argument("url", help="where browsers reach the platform, such as https://gpu.example.org")
    parser.add_argument(
        "--token", default="", help=f"what `manage.py add_host` printed; better in ${TOKEN_VARIABLE}, or asked for"
    )
    parser.add_argument("--file", type=Path, default=target, help="where the credentials are written")
    options = parser.parse_args(arguments)
    try:
        token = options.token or os.environ.get(TOKEN_VARIABLE, "") or _asked()
        found = credentials(options.url, token)
        write(options.file, found)
    except (JoinError, OSError) as error:
        sys.exit(f"This machine has not joined: {error}")
    sys.stdout.write(
        f"This machine is host {found['COMPUTE_HOST_NAME']} of resource group {found['COMPUTE_HOST_GROUP']} now. "
        f"Its credentials are in {options.file}.\nStart `manage.py hostworker`, and `manage.py gateway` for terminals "
        "and apps (COMPUTE_GATEWAY_ADDRESS).\nWhat it lacks for members of clusters, if anything:\n"
    )
    sys.stdout.flush()
    doctor = [sys.executable, str(ROOT / "manage.py"), "doctor", "networks of clusters"]
    subprocess.run(doctor, env=os.environ | found, check=False)


def credentials(url: str, token: str) -> dict[str, str]:
    """Return the settings that the platform at `url` gives for the token. Raises JoinError, OSError."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and is_this_machine(parts.hostname or "")):
        raise JoinError("credentials are sent over https:// alone; over http:// only within one machine.")
    request = urllib.request.Request(  # noqa: S310  # of http or https, see above
        f"{parts.scheme}://{parts.netloc}{PATH}",
        data=json.dumps({"token": token}).encode(),
        headers={"Content-Type": "application/json", "Accept": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310
            found = json.load(answer)
    except urllib.error.HTTPError as error:
        raise JoinError(_reason(error)) from error
    except TimeoutError as error:
        advice = "The platform may take the token all the same: ask for another one if it says that this was used."
        raise JoinError(f"{url} did not respond within {TIMEOUT_SECONDS} s. {advice}") from error
    except urllib.error.URLError as error:
        raise JoinError(f"{url} cannot be reached: {error.reason}") from error
    except ValueError as error:
        raise JoinError(f"what answers at {url} is no GPU Platform.") from error
    if not (isinstance(found, dict) and all(isinstance(part, str) for pair in found.items() for part in pair)):
        raise JoinError(f"what answers at {url} is no GPU Platform.")
    return found


def write(target: Path, variables: Mapping[str, str]) -> None:
    """Write the file whole or not at all, readable by its owner alone; one that is there keeps its place and owner."""
    target = target.resolve()  # a package has a link to it
    text = HEADING + "".join(f"{name}={value}\n" for name, value in sorted(variables.items()))
    draft = target.with_name(f"{target.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        if target.exists() and os.geteuid() == 0:
            os.fchown(descriptor, target.stat().st_uid, target.stat().st_gid)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def read(path: Path) -> dict[str, str]:
    """Return the variables of a file that `write` has made."""
    lines = (line for line in path.read_text().splitlines() if line and not line.startswith("#"))
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def _asked() -> str:
    if not sys.stdin.isatty():
        raise JoinError(f"there is no token: set {TOKEN_VARIABLE}.")
    import getpass

    return getpass.getpass("Token: ")


def is_this_machine(host: str) -> bool:
    """Return whether the host name or address means the machine that asks, whichever that is."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        answer = json.loads(error.read(10_000))
        return str(answer.get("detail") or answer)
    except (ValueError, OSError, AttributeError):
        return f"the platform responds {error.code} {error.reason}."
