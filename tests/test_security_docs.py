"""docs/security.md names tests that exist, and every line of its tables names one."""

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
TEXT: Final = (ROOT / "docs" / "security.md").read_text()
REFERENCE: Final = re.compile(r"`(?:(?P<path>[\w/]+\.py)(?:: )?)?(?P<test>test_\w+)?`")


def test_every_named_test_exists() -> None:
    missing, path = [], ""
    for reference in REFERENCE.finditer(TEXT):
        path = reference["path"] or path
        if not (ROOT / path).is_file():
            missing.append(path)
        elif reference["test"] and f"def {reference['test']}(" not in (ROOT / path).read_text():
            missing.append(f"{path}: {reference['test']}")
    assert missing == []


def test_every_line_of_the_tables_names_a_test() -> None:
    rows = [
        line for line in TEXT.splitlines() if line.startswith("| ") and not re.match(r"\| (attack|fault|who) \|", line)
    ]
    assert len(rows) > 60
    assert [row for row in rows if not any(each["path"] for each in REFERENCE.finditer(row)) and "](#" not in row] == []
