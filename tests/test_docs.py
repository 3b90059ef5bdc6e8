"""Links of the documents lead somewhere, the help shows what it should, and the index of ADRs is whole."""

import re
from itertools import chain
from pathlib import Path
from typing import Final

import pytest

from pages.help.documents import LANGUAGES
from pages.help.views import GROUPS

ROOT: Final = Path(__file__).resolve().parent.parent
DOCS: Final = ROOT / "docs"
ADRS: Final = sorted(DOCS.glob("adr/[0-9]*.md"))
FOR_ENGINEERS: Final = {"architecture", "design", "lifecycle"}  # the pages that the help does not show
PAGES: Final = [
    *(path for path in DOCS.rglob("*.md") if path.relative_to(DOCS).parts[0] not in LANGUAGES),
    *ROOT.glob("*.md"),
    *ROOT.glob("*/README.md"),
]


def anchors_of(path: Path) -> set[str]:
    """Return the anchors that code forges give the headings of a page."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=[str(path.relative_to(ROOT)) for path in PAGES])
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if ":" in name:
            continue
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors_of(target)):
            broken.append(link)
    assert broken == []


def test_no_page_removes_containers_of_other_installations() -> None:
    """On an engine that several share, the label alone would end the sessions of them all."""
    lines = [line for page in PAGES for line in page.read_text().splitlines() if re.search(r"\| *xargs.* rm\b", line)]
    removing = [line for line in lines if "docker ps" in line and "network" not in line]
    assert removing
    assert all("gpuplatform.installation=$key" in line for line in removing), removing


def test_every_page_is_for_somebody() -> None:
    shown = {
        for_staff: {*chain(*(group.names for group in GROUPS if group.for_staff is for_staff))}
        for for_staff in (False, True)
    }
    assert shown[False] == {path.stem for path in DOCS.glob("help/*.md")}
    assert shown[True] == {path.stem for path in DOCS.glob("*.md")} - FOR_ENGINEERS
    assert not shown[False] & (shown[True] | FOR_ENGINEERS), "a name is one document"


def test_pictures_of_the_help_are_few_and_small() -> None:
    text = "".join(path.read_text() for path in DOCS.glob("help/*.md"))
    shown = re.findall(r"!\[([^\]]{20,})\]\(\.\./images/([\w-]+\.png)\)", text)
    assert len(shown) == text.count("![")
    pictures = {path.name: path.stat().st_size for path in DOCS.glob("images/*.png")}
    assert {name for _, name in shown} == pictures.keys()
    assert len(pictures) <= 10
    assert max(pictures.values()) <= 60_000


def test_every_adr_is_in_the_index_once() -> None:
    links = re.findall(r"^\* \[(\d+)\]\((\S+\.md)\): (.+)$", (DOCS / "adr/README.md").read_text(), re.MULTILINE)
    headings = [(path.name, path.read_text().splitlines()[0]) for path in ADRS]
    assert sorted((name, f"# {number}. {title}") for number, name, title in links) == headings


def test_changed_adrs_link_to_what_changed_them() -> None:
    """An ADR that says in its text that it was superseded or amended says by which one, first of all."""
    for path in ADRS:
        first = path.read_text().splitlines()[2]
        by = re.findall(r"\[ADR \d+\]\((\d{4}-\S+\.md)\)", first)
        if re.search(r"\b(superseded|amended) (in part )?by\b", path.read_text(), re.IGNORECASE):
            assert first.startswith(("Superseded", "Amended")), path.name
            assert by, path.name
            assert all((path.parent / name).exists() and name > path.name for name in by), path.name
