"""The pages' table of how many commands a step takes."""

import re

import pytest

from tests.page_commands import commands_of
from tests.systemd_machine import ROOT


def lines_of(page: str, heading: str, *numbers: int) -> int:
    """Return how many commands the blocks below a heading have; one that goes on in another line is one."""
    blocks = [each.text for each in commands_of(page) if each.heading == heading and each.is_block]
    return sum(len(blocks[number].replace("\\\n", "").splitlines()) for number in numbers)


@pytest.mark.parametrize(
    ("step", "counts"),
    [
        ("install", [lines_of("install", "One machine", 0)]),
        ("a further host", [lines_of("install", "A further host", 0, 1), lines_of("install", "A further host", 1) + 1]),
        ("upgrade", [lines_of("upgrade", "Upgrading", 0), lines_of("upgrade", "Upgrading", 1)]),
        ("restore on another machine", [lines_of("backup", "On another machine", 0, 2)]),
    ],
)
def test_commands_are_as_many_as_the_table_says(step: str, counts: list[int]) -> None:
    row = re.search(rf"^\| \[{step}\]\S*\)[^|]*\| ([^|]*) \|", (ROOT / "docs/operations.md").read_text(), re.MULTILINE)
    assert row
    assert [int(number) for number in re.findall(r"\d+", row[1])] == counts
