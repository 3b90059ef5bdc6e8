"""The mutations stay in step with the code and with the tests that must notice them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from fgpu.tests.mutations import MUTATIONS


def test_every_mutation_still_applies() -> None:
    assert [mutation.name for mutation in MUTATIONS if not mutation.applies()] == []


def test_every_mutation_selects_a_test() -> None:
    arguments = ["-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", str(Path(__file__).parent)]
    listing = subprocess.run([sys.executable, *arguments], check=True, capture_output=True, text=True).stdout
    found = [(Path(file).name, test) for file, _, test in (line.partition("::") for line in listing.splitlines())]
    assert [
        mutation.name
        for mutation in MUTATIONS
        if not any(file == mutation.test_file and mutation.selects(test) for file, test in found)
    ] == []
