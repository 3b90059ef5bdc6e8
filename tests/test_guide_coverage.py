"""tests/guide-coverage.md maps every sentence of the guide to a test that exists and drives a browser."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "tests" / "guide-coverage.md").read_text()
SECTIONS = re.findall(r"^## (\d+)\. [^\n]+ \((\d+) sentences\)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| (\d+)\.(\d+) \| [^|]+ \| `([\w/.]+)::(test_\w+)` \|$", re.MULTILINE)


def test_the_page_has_all_sections_of_the_guide() -> None:
    assert [int(number) for number, _, _ in SECTIONS] == list(range(1, 10))
    assert len(ROW.findall(PAGE)) == PAGE.count("\n| ") - len(SECTIONS)  # no row but these and the heads


@pytest.mark.parametrize(("section", "count", "text"), SECTIONS, ids=[number for number, _, _ in SECTIONS])
def test_every_sentence_is_numbered_and_has_its_test(section: str, count: str, text: str) -> None:
    rows = ROW.findall(text)
    assert [(each[0], int(each[1])) for each in rows] == [(section, number) for number in range(1, int(count) + 1)]
    missing = [f"{file}::{name}" for _, _, file, name in rows if name not in browser_tests(ROOT / file)]
    assert not missing


def browser_tests(path: Path) -> set[str]:
    """Return the names of the tests of a module that is marked as driving a browser."""
    source = path.read_text() if path.exists() else ""
    if "pytest.mark.browser" not in source:
        return set()
    return {node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
