"""A step of the set-up says what it does and how long it took, and is over when it is done."""

import os
import subprocess
from pathlib import Path

STEP = Path(__file__).resolve().parents[1] / "bootstrap" / "step.sh"


def made(folder: Path, command: str) -> "subprocess.CompletedProcess[str]":
    """Have make run a step with a job server, as `make up` does."""
    (folder / "Makefile").write_text(f'all:\n\t+@sh {STEP} "The step" {command}\n')
    arguments = ["make", "-s", "-j", "2"]
    return subprocess.run(arguments, cwd=folder, capture_output=True, text=True, check=False, timeout=8)


def test_make_does_not_wait_for_a_step_that_is_done(tmp_path: Path) -> None:
    done = made(tmp_path, "true")
    assert (done.returncode, done.stdout) == (0, "==> The step\n    The step: done in 0 s\n")


def test_a_step_that_fails_shows_its_output(tmp_path: Path) -> None:
    done = made(tmp_path, "ls /nowhere")
    assert done.returncode != 0
    assert "/nowhere" in done.stderr
    assert "FAILED after 0 s: The step" in done.stderr


def test_changed_requirements_are_installed_again_and_others_not(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text((STEP.parents[2] / "Makefile").read_text())
    (tmp_path / ".venv").mkdir()
    pinned, stamp = tmp_path / "requirements.txt", tmp_path / ".venv" / "stamp-requirements"
    for path in (pinned, tmp_path / "constraints.txt", stamp):
        path.touch()

    def installed() -> bool:
        command = ["make", "-n", str(stamp.relative_to(tmp_path))]
        planned = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        return "venv.sh requirements.txt" in planned

    os.utime(pinned, (1, 1))
    os.utime(tmp_path / "constraints.txt", (1, 1))
    assert not installed()
    os.utime(pinned)
    os.utime(stamp, (2, 2))
    assert installed()
