"""Notebooks in a real browser: formatted away from the page, and as plain text where that is too much."""

import json
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from folders.models import Folder

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]

PIXEL: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
ENDLESS: Final = """export default class {
    utils = { escapeHtml: String };
    renderer = { rules: {} };
    render(source) { while (source.includes("slow")); return `<p>${source}</p>`; }
}"""
FOREIGN: Final = """export default class {
    utils = { escapeHtml: String };
    renderer = { rules: {} };
    render() { return '<p hx-get="/accounts/sign-out/" hx-trigger="load">pressed</p>'; }
}"""


def markdown(source: str) -> dict[str, str]:
    return {"cell_type": "markdown", "source": source}


def write(file: Path, *cells: dict[str, Any]) -> None:
    file.write_text(json.dumps({"cells": cells}))


def open_file(page: Page, folder: Folder, name: str) -> None:
    page.goto(f"/folders/{folder.pk}/file/?path={quote(name)}")


def use_parser(page: Page, script: str) -> None:
    """Let the notebook's worker have this in place of the parser."""
    page.route("**/markdown-it*", lambda route: route.fulfill(body=script, content_type="text/javascript"))


def test_a_notebook_is_formatted_and_harmless(page: Page, folder: Folder, files: Path) -> None:
    output = {"output_type": "display_data", "data": {"image/png": PIXEL}}
    stream = {"output_type": "stream", "text": "<b>loss</b> 0.5"}
    code = {"cell_type": "code", "source": "train()", "execution_count": 7, "outputs": [stream, output]}
    write(files / "a.ipynb", markdown("# A *title*\n\n<script>x</script>\n\n|a|\n|-:|\n|1|"), code, {"source": "raw"})
    open_file(page, folder, "a.ipynb")
    notebook = page.get_by_role("group", name="Notebook")
    expect(notebook.get_by_role("heading", name="A title")).to_be_visible()
    expect(notebook.get_by_text("<script>x</script>")).to_be_visible()
    expect(notebook.locator("td.text-end")).to_have_text("1")
    expect(notebook.locator(".notebook-number")).to_have_text("[7]")
    expect(notebook.locator("pre")).to_have_text(["train()", "<b>loss</b> 0.5", "raw"])
    image = notebook.get_by_role("img", name="Output of cell 7")
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") == 1
    expect(notebook).to_have_attribute("aria-busy", "false")


def test_what_takes_too_long_stays_plain_text(page: Page, folder: Folder, files: Path) -> None:
    write(files / "a.ipynb", markdown("first"), markdown("slow"), markdown("*last*"))
    use_parser(page, ENDLESS)
    page.clock.install()
    open_file(page, folder, "a.ipynb")
    notebook = page.get_by_role("group", name="Notebook")
    expect(notebook.locator("p")).to_have_text("first")
    page.clock.fast_forward(5000)
    expect(notebook.locator("p")).to_have_text(
        ["Some Markdown of this notebook is too much to format. It is shown as plain text.", "first"]
    )
    expect(notebook.locator("pre")).to_have_text(["slow", "*last*"])
    expect(notebook).to_have_attribute("aria-busy", "false")


def test_html_that_markdown_cannot_make_is_not_shown(page: Page, folder: Folder, files: Path) -> None:
    write(files / "a.ipynb", markdown("*press*"))
    use_parser(page, FOREIGN)
    open_file(page, folder, "a.ipynb")
    notebook = page.get_by_role("group", name="Notebook")
    expect(notebook.locator("p")).to_contain_text("too much to format")
    expect(notebook.locator("pre")).to_have_text("*press*")


def test_a_hostile_notebook_is_shown(page: Page, folder: Folder, files: Path) -> None:
    write(
        files / "a.ipynb", *[markdown("[" * 50_000)] * 3, markdown("|" * 300 + "\n" + "|-" * 299 + "\n" + "|\n" * 300)
    )
    open_file(page, folder, "a.ipynb")
    notebook = page.get_by_role("group", name="Notebook")
    expect(notebook).to_have_attribute("aria-busy", "false")
    expect(notebook.locator(".notebook-markdown")).to_have_count(3)
    expect(notebook.locator("p").first).to_contain_text("too much to format")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "is not valid JSON"),
        (b"\xff\xfe", "is not valid JSON"),
        (b"[" * 100_000, "is not valid JSON"),
        (b'{"cells": 5}', "has no cells in the format"),
    ],
)
def test_what_is_no_notebook_is_shown_as_text(
    page: Page, folder: Folder, files: Path, content: bytes, words: str
) -> None:
    (files / "a.ipynb").write_bytes(content)
    open_file(page, folder, "a.ipynb")
    notebook = page.get_by_role("group", name="Notebook")
    expect(notebook.locator("p")).to_contain_text(words)
    expect(notebook.locator("pre")).to_have_text(content.decode(errors="replace"))


def test_a_notebook_stays_until_its_file_changes(page: Page, folder: Folder, files: Path) -> None:
    write(files / "a.ipynb", markdown("# before"))
    open_file(page, folder, "a.ipynb")
    heading = page.get_by_role("heading", name="before")
    expect(heading).to_be_visible()
    heading.evaluate("heading => { heading.id = 'same'; }")
    with page.expect_response("**/file/**"):
        page.evaluate("() => document.dispatchEvent(new CustomEvent('live:changed'))")
    expect(page.locator("#same")).to_be_visible()
    write(files / "a.ipynb", markdown("# afterwards"))
    page.evaluate("() => document.dispatchEvent(new CustomEvent('live:changed'))")
    expect(page.get_by_role("heading", name="afterwards")).to_be_visible()
    expect(page.locator("#same")).to_have_count(0)
