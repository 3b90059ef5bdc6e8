"""One set-up at a time."""

import os
from pathlib import Path

import pytest

from gpuplatform.bootstrap import one_at_a_time
from gpuplatform.bootstrap.progress import SetupError


def test_a_second_one_is_refused_and_told_who_runs(tmp_path: Path) -> None:
    lock = tmp_path / "var" / "up.lock"
    with (
        one_at_a_time.hold(lock),
        pytest.raises(SetupError, match=f"process {os.getpid()}"),
        one_at_a_time.hold(lock),
    ):
        pytest.fail("both run")


def test_the_next_one_may_run_when_the_first_has_ended(tmp_path: Path) -> None:
    for _ in range(2):
        with one_at_a_time.hold(tmp_path / "up.lock"):
            assert (tmp_path / "up.lock").read_text() == f"{os.getpid()}\n"
