"""What `make up` says before it installs anything, on machines that lack something."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from django.conf import settings
from pytest_django import Settings

from gpuplatform.bootstrap import helper, installation
from operations.machine import docker_engine
from operations.machine.progress import Progress, SetupError

SCRIPT = Path(settings.BASE_DIR) / "gpuplatform" / "bootstrap" / "machine.sh"
TOOLS = ("sh", "dirname", "sed", "tail", "tr", "stat", "getent", "cut", "grep")  # on every machine

Machine = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Run the script on a machine that has these programs, as a user who is not root."""

    def run(*programs: str, system: str = "Linux", release: str = "6.1.0", **environment: str) -> object:
        folder = tmp_path / "bin"
        folder.mkdir()
        for name in TOOLS:
            (folder / name).symlink_to(
                next(path for path in (Path("/usr/bin", name), Path("/bin", name)) if path.exists())
            )
        fakes = dict.fromkeys(programs, "") | {
            "uname": f"case $1 in -s) echo {system} ;; -r) echo {release} ;; *) echo x86_64 ;; esac",
            "id": "case $1 in -u) echo 1000 ;; -un) echo ada ;; *) echo ada users ;; esac",
        }
        for name, body in fakes.items():
            (folder / name).write_text(f"#!/bin/sh\n{body}\n")
            (folder / name).chmod(0o755)
        # The script looks where administrators' programs are, too; there they must not be found.
        (tmp_path / "python.sh").write_text((SCRIPT.parent / "python.sh").read_text().replace("/usr/bin/python3 ", ""))
        text = SCRIPT.read_text().replace("PATH=$PATH:/usr/sbin:/sbin\n", "").replace("$here/", f"{tmp_path}/")
        return subprocess.run(
            ["/bin/sh", "-c", text],
            env={"PATH": str(folder), **environment},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    return run  # type: ignore[return-value]


ALL = ("apt-get", "python3", "iptables", "dockerd")


def test_a_complete_machine_needs_nothing(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "docker.sock").touch()
    done = machine(*ALL, COMPUTE_DOCKER_URL=f"unix://{tmp_path}/docker.sock")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_all_that_is_missing_is_listed_with_commands(machine: Machine, tmp_path: Path) -> None:
    done = machine("apt-get", COMPUTE_DOCKER_URL=f"unix://{tmp_path}/docker.sock")
    assert done.returncode == 1
    missing = ("Python 3.11 or newer, with venv", "iptables", "a Docker Engine")
    assert all(f"\n  {what}\n" in done.stderr for what in missing)
    (install,) = (line for line in done.stderr.splitlines() if "apt-get" in line)
    assert install.split()[:2] == ["sudo", "apt-get"]
    assert {"iptables", "docker.io"} < set(install.split())
    assert "sudo usermod -aG docker ada" in done.stderr


def test_an_engine_that_does_not_run_is_to_be_started(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"COMPUTE_DOCKER_URL=unix://{tmp_path}/docker.sock\n")
    done = machine(*ALL)
    assert done.returncode == 1
    assert "sudo service docker start" in done.stderr
    assert "apt-get" not in done.stderr


@pytest.mark.parametrize(
    ("system", "release", "words"),
    [("Darwin", "23.0", "This is Darwin."), ("Linux", "4.4.0-19041-Microsoft", "This is WSL 1")],
)
def test_unsupported_systems_are_refused(machine: Machine, system: str, release: str, words: str) -> None:
    done = machine(*ALL, system=system, release=release)
    assert done.returncode == 1
    assert words in done.stderr


def test_other_distributions_are_warned_that_nothing_is_installed(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "docker.sock").touch()
    done = machine(*ALL[1:], COMPUTE_DOCKER_URL=f"unix://{tmp_path}/docker.sock")
    assert done.returncode == 0
    assert "neither Debian nor Ubuntu" in done.stdout


def test_setup_stops_without_root_and_helper(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    settings.COMPUTE_DOCKER_URL = f"unix://{tmp_path}/docker.sock"
    with (tmp_path / "said").open("w") as said:
        with pytest.raises(SetupError, match="COMPUTE_PRIVILEGED_HELPER=false"):
            helper.ensure(Progress(said))
        settings.COMPUTE_PRIVILEGED_HELPER = False
        helper.ensure(Progress(said))


def test_setup_alone_only_warns_of_a_missing_helper(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr(docker_engine, "ensure", lambda *arguments: None)
    settings.COMPUTE_DOCKER_URL = f"unix://{tmp_path}/docker.sock"
    with (tmp_path / "said").open("w+") as said:
        with pytest.raises(SetupError, match="COMPUTE_PRIVILEGED_HELPER=false"):
            installation.prepare_machine(Progress(said), for_tests=False)
        installation.prepare_machine(Progress(said), for_tests=False, runs_here=False)
        said.seek(0)
        assert "WARNING: a host worker of this user lends whole GPUs only" in said.read()


def test_root_needs_no_helper(tmp_path: Path) -> None:
    assert os.geteuid() == 0
    with (tmp_path / "said").open("w+") as said:
        helper.ensure(Progress(said))
        assert said.tell() == 0
