"""The tests of the core catch faults of it: each of `faults.toml` can be planted, and in the campaign is caught."""

import subprocess
import sys

import pytest

from scheduler.core.tests.campaign import CORE
from scheduler.core.tests.faults import FAULTS, Fault

LEAST_CAUGHT = 0.95


@pytest.mark.parametrize("fault", FAULTS, ids=lambda it: f"{it.module}: {it.name}")
def test_fault_can_be_planted(fault: Fault) -> None:
    compile(fault.planted(fault.path.read_text()), fault.module, "exec")


def test_faults_are_many_and_differ() -> None:
    assert len(FAULTS) >= 100
    assert len({(it.module, it.name) for it in FAULTS}) == len(FAULTS)


@pytest.mark.long(20)
def test_nearly_all_faults_are_caught() -> None:
    command = [sys.executable, "-m", "scheduler.core.tests.campaign"]
    lines = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=CORE.parent.parent
    ).stdout.splitlines()
    survived = [line for line in lines if line.startswith("SURVIVED")]
    assert len(lines) == len(FAULTS) + 1
    assert len(survived) <= (1 - LEAST_CAUGHT) * len(FAULTS), survived
