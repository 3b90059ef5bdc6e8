"""A step of the set-up says what it does and how long it took, and is over when it is done."""

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
