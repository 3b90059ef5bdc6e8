"""Plant each fault of `faults.toml` in the core, one at a time, and see which the core's own tests catch.

`python -m scheduler.core.tests.campaign [words of the names]` prints a line for each fault, and last the number caught.
Each runs in a process forked from this one, in which the faulty source stands in the place of the module's.
"""

import os
import signal
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

import resources.amounts.units  # noqa: F401  # once for all, as is the next
import sessions.lifecycle  # noqa: F401
from scheduler.core.tests.faults import FAULTS, Fault

CORE: Final = Path(__file__).parent.parent
TESTS: Final = (
    "small_rules",
    "cluster_words",
    "topology",
    "oracle",
    "victims",
    "member_preemption",
    "elastic",
)  # without those that draw their worlds by chance
SECONDS: Final = 300  # a faulty loop without an end is caught then
OPTIONS: Final = ("-x", "-q", "--noconftest", "-c", os.devnull, "--rootdir", "/", "-p", "no:cacheprovider")


class _Loader(SourceFileLoader):
    """Loads a module with a fault."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(f"scheduler.core.{fault.module}", str(fault.path))
        self._fault = fault

    def get_code(self, fullname: str) -> object:  # type: ignore[override]
        """Compile the faulty source."""
        return compile(self._fault.planted(self._fault.path.read_text()), self.path, "exec")


class _Finder(MetaPathFinder):
    """Finds the module in which a fault is planted."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return how the module is loaded, if it is the one."""
        if fullname != f"scheduler.core.{self._fault.module}":
            return None
        return spec_from_file_location(fullname, self._fault.path, loader=_Loader(self._fault))


class _SeedsInTurn:
    """Has the first seed of each test come before the second of any, as most faults show soon."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Sort the tests by their seeds."""
        items.sort(key=lambda item: item.callspec.params.get("seed", 0) if hasattr(item, "callspec") else 0)


def is_caught(fault: Fault | None) -> bool:
    """Return whether a test of the core fails with the fault."""
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        if fault is not None:
            sys.meta_path.insert(0, _Finder(fault))
        files = [str(CORE / "tests" / f"test_{name}.py") for name in TESTS]
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        os._exit(pytest.main([*OPTIONS, *files], [_SeedsInTurn()]))
    _, status = os.waitpid(child, 0)
    return status != 0


def survivors(faults: Sequence[Fault]) -> list[str]:
    """Return the names of the faults that no test has caught; print a line for each fault."""
    found = []
    for fault in faults:
        caught = is_caught(fault)
        verdict = "caught" if caught else "SURVIVED"
        sys.stdout.write(f"{verdict} {fault.module}: {fault.name}\n")
        sys.stdout.flush()
        if not caught:
            found.append(fault.name)
    return found


if __name__ == "__main__":
    if is_caught(None):
        sys.exit("the tests fail without a fault")
    words = sys.argv[1:]
    chosen = [it for it in FAULTS if not words or any(word in f"{it.module}: {it.name}" for word in words)]
    left = survivors(chosen)
    sys.stdout.write(f"{len(chosen) - len(left)} of {len(chosen)} faults were caught\n")
