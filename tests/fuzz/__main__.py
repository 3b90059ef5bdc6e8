"""Runs targets by hand: `python -m tests.fuzz TARGET... --seconds 60`; without a target, all of them."""

import argparse
import os
import sys

import pytest

from tests.fuzz.catalogue import names


def main() -> int:
    """Run them as `make test-long` does, one after another."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(names())}")
    parser.add_argument("--seconds", type=int, default=60, help="for each")
    asked = parser.parse_args()
    if unknown := set(asked.targets) - set(names()):
        parser.error(f"there is no target {', '.join(sorted(unknown))}")
    os.environ["FUZZ_SECONDS"] = str(asked.seconds)
    tests = [f"tests/fuzz/test_targets.py::test_fuzzing_finds_no_fault[{name}]" for name in asked.targets or names()]
    return pytest.main(["-q", "-s", *tests])


if __name__ == "__main__":
    sys.exit(main())
