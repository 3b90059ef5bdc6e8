"""The order of the tests, and what of them one process runs: tests/plugin.py."""

from pathlib import Path

import pytest

from tests.plugin import BROWSER_SCOPES, ON_ONE_PLATFORM, ON_ONE_SERVER, RANKS, ROOT, minutes_of, positions_of, scope_of

BROWSER_FILES = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("*/tests/test_*_browser.py"))


def test_files_that_compute_are_spread_over_those_that_wait() -> None:
    names = [f"{rank} {number}" for rank in ("browser", "docker", "other") for number in range(10)]
    ranks = {Path(name): RANKS.index(name.split()[0]) for name in names}
    positions = positions_of(ranks)
    order = [path.name.split()[0] for path in sorted(ranks, key=lambda path: positions[path])]
    assert order[:10] == ["browser"] * 10
    assert order[-3:] == ["other"] * 3  # no container at the end, when other processes have nothing left
    assert all({"docker", "other"} == set(order[at : at + 4]) for at in range(10, 23))


def test_files_of_browsers_are_halved_between_two_processes() -> None:
    scopes = [scope_of(file) for file in BROWSER_FILES]
    assert len(set(scopes)) == BROWSER_SCOPES
    assert max(scopes.count(scope) for scope in scopes) <= 0.65 * len(scopes)


def test_files_of_a_platform_or_server_are_one_others_alone() -> None:
    assert {scope_of(file) for file in ON_ONE_PLATFORM} == {"platform"}
    assert {scope_of(file) for file in ON_ONE_SERVER} == {"server"}
    assert all((ROOT / file).is_file() for file in ON_ONE_PLATFORM | ON_ONE_SERVER)
    assert scope_of("accounts/tests/test_login.py") == "accounts/tests/test_login.py"


def test_minutes_of_a_campaign_are_read_however_they_are_given() -> None:
    long = pytest.mark.long
    assert [minutes_of(each.mark) for each in (long, long(8), long(minutes=8))] == [0, 8, 8]
