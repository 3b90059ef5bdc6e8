"""The documentation as pages: the HTML of a document, and a search over the sections of some. No Django.

Those of users lie in docs/help/, and their pictures in docs/images/; those of who runs the platform in docs/. All are
written in English. A translation lies at the same path below docs/<language>/ and begins with the digest of the English
text that it translates; where that has changed since, the page says so.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from html import unescape
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs"
FOR_USERS: Final = "help"  # the folder of their documents
ORIGINAL: Final = "en"
LANGUAGES: Final = ("ko",)  # of translations
MAX_RESULTS: Final = 30
EXCERPT_CHARACTERS: Final = 180
MAX_WORDS: Final = 20  # of a search, which looks for each in all documents
_MARKDOWN: Final = MarkdownIt("commonmark", {"html": False}).enable("table")
_TRANSLATES: Final = re.compile(r"<!-- translates ([0-9a-f]{16}) -->\n")
_FOREIGN: Final = re.compile(r"[a-z][a-z0-9+.-]*:|/", re.IGNORECASE)  # addresses that lead out of the documents


@dataclass(frozen=True)
class Section:
    """A heading of a document and the text below it; the first one is the document's title."""

    title: str
    anchor: str
    level: int
    text: str


@dataclass(frozen=True)
class Document:
    """A file of the documentation."""

    name: str  # file name without .md
    title: str
    html: str
    sections: tuple[Section, ...]
    language: str = ORIGINAL
    is_outdated: bool = False  # a translation of which the English document has changed since

    @property
    def summary(self) -> str:
        """Return the first sentence of the document."""
        return self.sections[0].text.partition(". ")[0].rstrip(".:") + "."


@dataclass(frozen=True)
class SearchHit:
    """A section that holds all words of a search."""

    document: Document
    section: Section
    excerpt: str


def digest_of(name: str) -> str:
    """Return the digest of the English text by which a translation names it."""
    return hashlib.sha256(_path(name).read_bytes()).hexdigest()[:16]


def _path(name: str, language: str = "") -> Path:
    """Return where the document is, or would be if there were a translation into the language."""
    path = FOLDER / language / FOR_USERS / f"{name}.md"
    return path if path.exists() else FOLDER / language / f"{name}.md"


@cache
def load(name: str, among: frozenset[str], language: str = ORIGINAL) -> Document:
    """Return the document in a language, in English where it is not translated. Raises KeyError if not `among` these.

    Its links lead to documents among these alone.
    """
    if name not in among:
        raise KeyError(name)
    path = _path(name, language)
    if language not in LANGUAGES or not path.exists():
        return _document(name, _path(name).read_text(), among)
    text = path.read_text()
    source = _TRANSLATES.match(text)
    anchors = [section.anchor for section in load(name, among).sections]
    document = _document(name, text[source.end() if source else 0 :], among, anchors)
    return replace(document, language=language, is_outdated=source is None or source[1] != digest_of(name))


def _document(name: str, text: str, among: frozenset[str], anchors: Sequence[str] = ()) -> Document:
    """Return the document of a text; the headings of a translation have the `anchors` of the original's."""
    tokens = _MARKDOWN.parse(text)
    sections = tuple(_sections(tokens, anchors))
    for token in tokens:
        _lead_to_pages(token.children or (), name, among)
        if token.type == "fence" and token.info.strip() == "mermaid":
            token.hidden, token.type, token.content = True, "html_block", ""  # a drawing, which needs a program
    html = str(_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {}))
    html = html.replace("<table>", '<div class="help-table" tabindex="0"><table>').replace("</table>", "</table></div>")
    html = html.replace("<pre>", '<pre tabindex="0">')
    return Document(name, sections[0].title, html, sections)


def search(query: str, among: frozenset[str], language: str = ORIGINAL) -> list[SearchHit]:
    """Return the sections of these documents that hold every word of the query, those with it in the title first."""
    words = list(dict.fromkeys(query.casefold().split()))[:MAX_WORDS]
    found = [
        SearchHit(document, section, _excerpt(section.text, words[0]))
        for document in (load(name, among, language) for name in sorted(among))
        for section in document.sections
        if words and all(word in f"{section.title} {section.text}".casefold() for word in words)
    ]
    found.sort(key=lambda result: not all(word in result.section.title.casefold() for word in words))
    return found[:MAX_RESULTS]


def _sections(tokens: Sequence[Token], anchors: Sequence[str]) -> list[Section]:
    """Return the sections, and give each heading the next of the anchors, else the one that it has on code forges."""
    found: list[tuple[str, str, int, list[str]]] = []
    given = iter(anchors)
    for index, token in enumerate(tokens):
        if token.type == "heading_open":
            title = _plain(tokens[index + 1])
            anchor = next(given, re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-"))
            token.attrSet("id", anchor)
            found.append((title, anchor, int(token.tag[1:]), []))
        elif token.type == "inline" and tokens[index - 1].type != "heading_open":
            found[-1][3].append(_plain(token))
        elif token.type == "fence":
            found[-1][3].append(token.content)
    return [Section(title, anchor, level, " ".join(texts)) for title, anchor, level, texts in found]


def _plain(token: Token) -> str:
    return unescape("".join(" " if child.type == "softbreak" else child.content for child in token.children or ()))


def _lead_to_pages(tokens: Sequence[Token], name: str, among: frozenset[str]) -> None:
    """Let the links of a paragraph lead to pages, and those to other files nowhere."""
    tag = "a"
    for token in tokens:
        if token.type == "link_open":
            address = _address(str(token.attrGet("href")), name, among)
            tag = "a" if address else "span"
            token.attrs = {"href": address} if address else {}
        if token.type in ("link_open", "link_close"):
            token.tag = tag


def _address(href: str, name: str, among: frozenset[str]) -> str:
    """Return where a link of the document leads to among the pages: `folders.md#x` is `../folders/#x`; or ""."""
    if href.startswith("#") or _FOREIGN.match(href):
        return href
    path, _, anchor = href.partition("#")
    target = _path(name).parent.joinpath(path).resolve().relative_to(FOLDER.parent).as_posix()
    page = target.removeprefix("docs/").removeprefix(f"{FOR_USERS}/").removesuffix(".md")
    if page not in among:
        return ""
    return f"../{page}/" + (f"#{anchor}" if anchor else "")


def _excerpt(text: str, word: str) -> str:
    start = max(0, text.casefold().find(word) - EXCERPT_CHARACTERS // 3)
    cut = text[start : start + EXCERPT_CHARACTERS].strip()
    return f"{'… ' if start else ''}{cut}{' …' if start + EXCERPT_CHARACTERS < len(text) else ''}"
