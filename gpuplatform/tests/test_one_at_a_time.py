"""One set-up at a time."""

import os
from pathlib import Path

import pytest

from operations.machine import one_at_a_time
from operations.machine.progress import SetupError


def test_a_second_run_is_refused_with_the_first_pid(tmp_path: Path) -> None:
    lock = tmp_path / "var" / "up.lock"
    with (
        one_at_a_time.hold(lock),
        pytest.raises(SetupError, match=f"process {os.getpid()}"),
        one_at_a_time.hold(lock),
    ):
        pytest.fail("both run")


def test_the_next_run_may_start_after_the_first(tmp_path: Path) -> None:
    for _ in range(2):
        with one_at_a_time.hold(tmp_path / "up.lock"):
            assert (tmp_path / "up.lock").read_text() == f"{os.getpid()}\n"
