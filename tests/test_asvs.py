"""tests/asvs.md has each requirement of OWASP ASVS 5.0, levels 1 and 2, once; its tests and pages exist."""

import re
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).resolve().parent
ROOT: Final = TESTS.parent
PAGE: Final = (TESTS / "asvs.md").read_text()
ROW: Final = re.compile(r"^\| (V\d+\.\d+\.\d+) \| ([12]) \| (.+?) \| (.+?) \| (.+?) \| (.*?) ?\|$", re.MULTILINE)
REFERENCE: Final = re.compile(r"`([\w/.-]+\.(?:py|js))(?:: (test_\w+))?`")
LINK: Final = re.compile(r"\]\((\.\./[\w/.-]+)(?:#([\w-]+))?\)")
WITH_TESTS: Final = ("met", "in part")
WITHOUT: Final = ("not met", "does not apply")


def test_each_requirement_is_there_once_with_its_level() -> None:
    levels = [tuple(line.split()) for line in (TESTS / "asvs-5.0-levels.txt").read_text().splitlines()]
    assert len(levels) == 253
    assert [row[:2] for row in ROW.findall(PAGE)] == levels
    assert PAGE.count("\n| V") == len(levels)


def test_what_is_met_names_tests_and_the_rest_says_why() -> None:
    for number, _, _, status, how, tests in ROW.findall(PAGE):
        assert status in WITH_TESTS + WITHOUT, number
        assert bool(REFERENCE.findall(tests)) == (status in WITH_TESTS), number
        assert how.strip(), number


def test_the_numbers_at_the_top_are_those_of_the_table() -> None:
    found = [row[3] for row in ROW.findall(PAGE)]
    met, part, none, off = (found.count(status) for status in (*WITH_TESTS, *WITHOUT))
    assert f"Of {len(found)}, {met} are met, {part} in part, {none} are not, and {off} do not apply" in PAGE


def test_every_named_test_exists() -> None:
    missing = []
    for path, test in REFERENCE.findall(PAGE):
        text = (ROOT / path).read_text() if (ROOT / path).is_file() else ""
        if not text or (test and f"def {test}(" not in text):
            missing.append(f"{path}: {test}")
    assert missing == []


def test_every_linked_section_exists() -> None:
    for path, section in LINK.findall(PAGE):
        headings = re.findall(r"^#+ (.+)$", (ROOT / path.removeprefix("../")).read_text(), re.MULTILINE)
        slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert not section or section in slugs, f"{path}#{section}"
