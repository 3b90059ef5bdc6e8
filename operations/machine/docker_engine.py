"""Find a Docker Engine, or install and start one on Debian and Ubuntu as root."""

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from docker import APIClient
from docker.errors import DockerException
from requests.exceptions import RequestException

from engine import products
from operations.machine import system_packages
from operations.machine.progress import SetupError

DEFAULT_URL: Final = "unix:///var/run/docker.sock"
PACKAGES: Final = {"dockerd": "docker.io", "iptables": "iptables"}
ANSWER_SECONDS: Final = 10
START_SECONDS: Final = 60.0
PAUSE_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerEngine:
    """The version of an Engine; `problem` says why it is of no use, else it is "".

    One that does not respond has no version.
    """

    problem: str = ""
    version: str = ""


def examine(url: str) -> DockerEngine:
    """Return the version of the Engine at `url`; never raises.

    `/info` would wait, up to Docker 20.10, while the Engine looks up the name of a registry: minutes where no name
    server answers.
    """
    path = Path(url.removeprefix("unix://")) if url.startswith("unix://") else None
    if path and not path.exists():
        return DockerEngine(problem=f"there is no Docker Engine at {url}: {path} does not exist")
    if path and not os.access(path, os.R_OK | os.W_OK):
        return DockerEngine(
            problem=f"you may not use {path}. Run: sudo usermod -aG docker $USER, and sign in to this machine again"
        )
    try:
        with closing(APIClient(base_url=url, timeout=ANSWER_SECONDS)) as client:
            about: dict[str, Any] = client.version()
    except (DockerException, RequestException, OSError) as error:
        return DockerEngine(problem=f"the Docker Engine at {url} does not answer: {error}")
    refused = products.problem(about)
    return DockerEngine(
        problem=refused and f"the engine at {url} will not do: {refused}", version=str(about.get("Version", ""))
    )


def ensure(url: str, log: Path, report: Callable[[str], None]) -> DockerEngine:
    """Return the Engine at `url`, installed and started if needed; raise SetupError if that fails.

    An Engine that this starts outlives the platform, as the sessions' containers do; it writes to `log`.
    """
    engine = examine(url)
    if engine.problem and not engine.version and url == DEFAULT_URL and os.geteuid() == 0:
        if not system_packages.program("dockerd") and not system_packages.can_install():
            raise SetupError(_advice(engine.problem))
        system_packages.ensure(PACKAGES, report)
        engine = start(url, _start_command(), log, report)
    if engine.problem:
        raise SetupError(_advice(engine.problem))
    report(f"Docker Engine {engine.version}")
    return engine


def start(url: str, command: Sequence[str], log: Path, report: Callable[[str], None]) -> DockerEngine:
    """Run `command` detached unless the Engine responds, and wait for it; return the Engine or its problem."""
    engine = examine(url)
    if not engine.problem:
        return engine
    report(f"starting the Docker Engine: {' '.join(command)}")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    deadline = time.monotonic() + START_SECONDS
    while engine.problem and time.monotonic() < deadline:
        if process.poll():  # a launcher such as systemctl ends with 0, and a running server with None
            ending = "\n".join(log.read_text(errors="replace").splitlines()[-10:])
            return DockerEngine(
                problem=f"{command[0]} ended with status {process.returncode}; the end of {log}:\n{ending}"
            )
        time.sleep(PAUSE_SECONDS)
        engine = examine(url)
    return engine


def _start_command() -> list[str]:
    if Path("/run/systemd/system").is_dir():  # systemd is the init of this machine: sd_booted(3)
        return ["systemctl", "enable", "--now", "docker"]
    return [system_packages.program("dockerd") or "dockerd"]


def _advice(problem: str) -> str:
    return (
        f"{problem}.\nSessions run in containers, so the platform needs a Docker Engine. On Debian or Ubuntu run: "
        "sudo apt-get install docker.io iptables; on other systems see https://docs.docker.com/engine/install/. "
        "An Engine elsewhere is named by COMPUTE_DOCKER_URL in .env."
    )
