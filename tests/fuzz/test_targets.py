"""Every kept input passes through its target; the campaign goes on from there, guided by coverage."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_django import DjangoDbBlocker

from folders.files.downloads.archive import safe_name
from tests.fuzz.catalogue import CLIENT, DATABASE, FOUND, HERE, ROOT, check_of, kept, names, prepared
from tests.fuzz.steps import TooManyStepsError, run_counted
from tests.live import database_environment

SECONDS = int(os.environ.get("FUZZ_SECONDS", "20"))  # for each target
MAX_INPUT_BYTES = 4096
HANGS_SECONDS = 60  # for one input, which takes milliseconds: it has no end
MEMORY_MIB = 2048


@pytest.fixture
def database(request: pytest.FixtureRequest, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """The test database, for the targets that read it."""
    if not request.node.callspec.params["name"].startswith(f"{DATABASE}."):
        yield
        return
    request.getfixturevalue("django_db_setup")
    with django_db_blocker.unblock():
        yield


def replay(name: str, inputs: list[Path]) -> None:
    """Run the target on inputs within the bound of their length."""
    check = check_of(name)
    with prepared(name):
        for path in inputs:
            try:
                run_counted(check, path.read_bytes())
            except (Exception, TooManyStepsError) as error:
                raise AssertionError(f"{name} fails at {path}") from error


@pytest.mark.parametrize("name", names())
def test_kept_inputs_pass(name: str, database: None) -> None:
    assert kept(name), f"keep a few inputs in {HERE / 'corpus' / name}"
    replay(name, kept(name))


def test_each_corpus_has_its_target() -> None:
    assert {path.name for path in (HERE / "corpus").iterdir()} <= set(names())


def test_work_beyond_the_input_is_noticed() -> None:
    def endless(data: bytes) -> None:
        while True:
            safe_name("a")

    with pytest.raises(TooManyStepsError):
        run_counted(endless, b"x")


@pytest.mark.long(30)
@pytest.mark.parametrize("name", names())
def test_fuzzing_finds_no_fault(name: str, database: None) -> None:
    found, broken = FOUND / name, FOUND / "broken"
    for folder in (found, broken):
        folder.mkdir(parents=True, exist_ok=True)
    options = {
        "max_total_time": SECONDS,
        "max_len": MAX_INPUT_BYTES,
        "timeout": HANGS_SECONDS,
        "rss_limit_mb": MEMORY_MIB,
        "print_final_stats": 1,
        "artifact_prefix": f"{broken}/{name}-",
    }
    command = [sys.executable, "-m", "tests.fuzz.process", name, *(f"-{key}={value}" for key, value in options.items())]
    folders = [str(found), str(HERE / "corpus" / name)]
    environment = os.environ | {"PYTHONPATH": str(CLIENT)}
    if name.startswith(f"{DATABASE}."):
        environment |= database_environment()
    done = subprocess.run(
        [*command, *folders], cwd=ROOT, env=environment, capture_output=True, text=True, errors="replace"
    )
    assert done.returncode == 0, f"the input is in {broken}; keep it, mended:\n{done.stderr[-6000:]}"
    executed = re.findall(r"number_of_executed_units: (\d+)", done.stderr)
    sys.stdout.write(f"\n{name}: {' '.join(executed)} executions in {SECONDS} s\n")
    replay(name, sorted(found.iterdir()))
