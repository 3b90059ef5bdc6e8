"""docs/security.md has a line of tests/security-coverage.md for each of its own, and these tests exist."""

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = (ROOT / "docs" / "security.md").read_text()
COVERAGE: Final = (ROOT / "tests" / "security-coverage.md").read_text()
LINE: Final = re.compile(r"^\| ([A-Z]\d+) \| (.+) \|$", re.MULTILINE)
REFERENCE: Final = re.compile(r"`(?:(?P<path>[\w/]+\.py)(?:: )?)?(?P<test>test_\w+)?`")


def test_every_named_test_exists() -> None:
    missing, path = [], ""
    for reference in REFERENCE.finditer(COVERAGE):
        path = reference["path"] or path
        if not (ROOT / path).is_file():
            missing.append(path)
        elif reference["test"] and f"def {reference['test']}(" not in (ROOT / path).read_text():
            missing.append(f"{path}: {reference['test']}")
    assert missing == []


def test_every_line_of_the_page_has_its_tests() -> None:
    lines, covered = dict(LINE.findall(PAGE)), dict(LINE.findall(COVERAGE))
    assert len(lines) > 60
    assert (len(lines), len(covered)) == (len(LINE.findall(PAGE)), len(LINE.findall(COVERAGE))), "a number twice"
    linked = {number for number, text in lines.items() if "](#" in text}  # a line about the tables that follow
    assert covered.keys() <= lines.keys() <= covered.keys() | linked
    assert all(".py" in tests for tests in covered.values())
