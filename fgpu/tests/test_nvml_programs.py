"""Other people's programs that show GPUs, from PyPI and Debian: each shows the share, and without the hook the GPU."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from fgpu.tests.host import GIB, MIB, Host, Session
from tests.debian import unpack
from tests.wait import until

pytestmark = pytest.mark.long(3)

TABLE = Path(__file__).resolve().parents[1] / "programs" / "nvml.toml"
PROGRAMS = tomllib.loads(TABLE.read_text())["program"]
ESCAPE_SEQUENCE = re.compile(r"\x1b(\[[0-9;?]*[a-zA-Z]|[()][A-Z0-9]|[=>])")
CONTRIB = "deb http://deb.debian.org/debian bookworm contrib"
UTILISATION = ("--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")
LEAST_USE = 50  # percent of the share; all of the share is 25 % of the card
SECONDS = 90


@pytest.fixture(scope="module", params=PROGRAMS, ids=lambda program: program["name"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A row of the table, with its command as it is run here."""
    row: dict[str, Any] = request.param
    folder = tmp_path_factory.mktemp("program")
    if "debian" in row:
        unpack(row["debian"], folder, CONTRIB)
    else:
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        subprocess.run([folder / "venv/bin/pip", "install", "-q", *row["packages"]], check=True)
    site = folder / f"venv/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    places = {"{python}": str(folder / "venv/bin/python"), "{site}": str(site), "{root}": str(folder)}
    command = row["command"]
    for place, path in places.items():
        command = [word.replace(place, path) for word in command]
    return row | {"command": command}


def run(session: Session, program: dict[str, Any], patterns: list[str]) -> str:
    """Return what it has printed when it ends, or has shown all of the patterns; it is told to end then."""
    output = session.host.folder / "output"
    own = {"HOME": str(output.parent), "TERM": "xterm", "LC_ALL": "C.UTF-8"}
    environment = session.environment() | own
    with output.open("wb") as file:
        process = subprocess.Popen(
            program["command"], env=environment, stdout=file, stderr=file, process_group=0, text=True
        )
    session.host.processes.append(process)

    def shown() -> str:
        return ESCAPE_SEQUENCE.sub("", output.read_text(errors="replace"))

    until(lambda: process.poll() is not None or all(re.search(each, shown()) for each in patterns), seconds=SECONDS)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
    return shown()


@pytest.mark.parametrize("hooked", [True, False], ids=["session", "card"])
def test_a_program_shows_the_share_and_not_the_gpu(host: Host, program: dict[str, Any], hooked: bool) -> None:
    session = host.session()
    with host.session().probe() as stranger, session.probe() as own:
        assert stranger.alloc(GIB) == 0
        assert own.alloc(512 * MIB) == 0
        session.start("test/load", "sync", "20000", str(SECONDS * 1000))
        until(lambda: int(session.run("sim/nvidia-smi", *UTILISATION)) >= LEAST_USE)
        share = [pattern.replace("{own}", str(own.pid)) for pattern in program["share"]]
        card = program.get("card", [])
        there, absent = (share, [*card, rf"\b{stranger.pid}\b"]) if hooked else (card, [])
        use = [program["use"]] if "use" in program else []
        shown = run(session if hooked else host.bare(), program, there + use)
    assert [pattern for pattern in there if not re.search(pattern, shown)] == [], shown
    assert [pattern for pattern in absent if re.search(pattern, shown)] == [], shown
    for pattern in use:
        assert (int(re.findall(pattern, shown)[-1]) >= LEAST_USE) == hooked, shown
