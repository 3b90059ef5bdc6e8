"""tests/help-coverage.md names for every claim of the users' help tests that exist."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT: Final = Path(__file__).resolve().parent.parent
PAGES: Final = sorted(ROOT.glob("docs/help/*.md"))
COVERAGE: Final = (ROOT / "tests/help-coverage.md").read_text()
ROW: Final = re.compile(r"^\| (.+) \| ((?:`test_\w+`(?:, )?)+) \|$", re.MULTILINE)
BEGINNING: Final = 50  # characters by which a claim is named
_MARKDOWN: Final = MarkdownIt("commonmark").enable("table")
_SENTENCE: Final = re.compile(r'(?<=[.:]) (?=[A-Z"])')


@pytest.fixture(scope="module")
def tests_of_the_project() -> set[str]:
    paths = (path for path in ROOT.glob("*/**/test_*.py") if not {".venv", "node_modules", "var"} & {*path.parts})
    return {
        name
        for path in paths
        for name in re.findall(r"^\s*(?:async )?def (test_\w+)\(", path.read_text(), re.MULTILINE)
    }


def section(name: str) -> str:
    """Return the rows of a page."""
    _, heading, rest = COVERAGE.partition(f"\n## {name}\n")
    assert heading, f"{name}.md has no section"
    return rest.partition("\n## ")[0]


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_every_claim_has_its_tests(page: Path, tests_of_the_project: set[str]) -> None:
    rows = ROW.findall(section(page.stem))
    assert [claim for claim, _ in rows] == claims(page.read_text())
    assert {*re.findall(r"test_\w+", "".join(tests for _, tests in rows))} <= tests_of_the_project


def test_known_bugs_of_others_have_their_tests(tests_of_the_project: set[str]) -> None:
    table = (ROOT / "deployments/README.md").read_text().partition("## Bugs of others")[2]
    assert {*re.findall(r"test_\w+", table)} <= tests_of_the_project


def test_no_row_is_without_a_claim() -> None:
    assert re.findall(r"^## (.+)$", COVERAGE, re.MULTILINE) == [
        *dict.fromkeys(re.findall(r"^## (.+)$", COVERAGE, re.MULTILINE))
    ]
    assert {*re.findall(r"^## (.+)$", COVERAGE, re.MULTILINE)} == {page.stem for page in PAGES}
    assert len(ROW.findall(COVERAGE)) == COVERAGE.count("\n| ") - len(PAGES)  # no row but these and the heads


def claims(text: str) -> list[str]:
    """Return the beginnings of all claims of a page, in its order."""
    return [claim.replace("|", "/")[:BEGINNING].strip() for claim in _claims(_MARKDOWN.parse(text))]


def _claims(tokens: list[Token]) -> Iterator[str]:
    inside: list[str] = []
    is_named = False  # the table has been, by its first cell below the heads
    for token in tokens:
        kind, _, edge = token.type.rpartition("_")
        if edge == "open":
            inside.append(kind)
            is_named = is_named and kind != "table"
        elif edge == "close":
            inside.pop()
        elif token.type == "inline" and not {"heading", "thead"} & {*inside} and (text := _plain(token)):
            if "table" not in inside:
                yield from [text] if "list_item" in inside else _SENTENCE.split(text)
            elif not is_named:
                yield f"Table: {text}"
                is_named = True


def _plain(token: Token) -> str:
    parts = (child for child in token.children or () if child.type != "image")
    return "".join(" " if part.type == "softbreak" else part.content for part in parts).strip()
