"""What a notebook shows, and what in it must not reach a page."""

import base64
import json
from typing import Any

import pytest

from folders.pages.notebook import MAX_CELLS, PNG_SIGNATURE, Notebook, NotebookError, NotebookOutput, read_notebook

PNG = base64.b64encode(PNG_SIGNATURE + b"rest").decode()


def notebook(*cells: dict[str, Any], **fields: Any) -> Notebook:
    return read_notebook(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4} | fields).encode())


def code(*outputs: dict[str, Any]) -> dict[str, Any]:
    return {"cell_type": "code", "source": ["1 +\n", "1"], "execution_count": 3, "outputs": list(outputs)}


def test_cells_are_read_in_order_with_their_outputs() -> None:
    shown = notebook(
        {"cell_type": "markdown", "source": "# A *title*\n\n| a |\n|---|\n| 1 |"},
        code(
            {"output_type": "stream", "text": ["one\n", "two"]},
            {"output_type": "execute_result", "data": {"text/plain": "2", "text/html": "<b>2</b>"}},
            {"output_type": "display_data", "data": {"image/png": PNG, "text/plain": "<Figure>"}},
            {"output_type": "error", "traceback": ["\x1b[0;31mZeroDivisionError\x1b[0m: no"]},
        ),
        {"cell_type": "raw", "source": "as it is"},
        metadata={"language_info": {"name": "python"}},
    )
    title, calculation, raw = shown.cells
    assert "<h1>A <em>title</em></h1>" in title.html
    assert "<td>1</td>" in title.html
    assert (calculation.source, calculation.number) == ("1 +\n1", "3")
    assert calculation.outputs == (
        NotebookOutput("text", "one\ntwo"),
        NotebookOutput("text", "2"),
        NotebookOutput("image", f"data:image/png;base64,{PNG}"),
        NotebookOutput("error", "ZeroDivisionError: no"),
    )
    assert (raw.kind, raw.source, shown.language) == ("raw", "as it is", "python")


@pytest.mark.parametrize(
    ("source", "hidden", "shown"),
    [
        ("<script>alert(1)</script>", "<script", "&lt;script&gt;"),
        ('a <img src=x onerror="alert(1)">', "<img", "&lt;img"),
        ("[press](javascript:alert(1))", "href", "javascript:alert(1)"),
        ("[press](JaVaScRiPt:alert(1))", "href", "press"),
        ("[press](data:text/html,<script>)", "href", "press"),
        ("[press](/accounts/logout/)", "href", "press"),
        ("[press](//evil.example/)", "href", "press"),
        ("![a <b>picture</b>](https://evil.example/pixel.png)", "<img", "[image: a &lt;b&gt;picture&lt;/b&gt;]"),
        ("```python\n<script>\n```", "<script", "&lt;script&gt;"),
        ('```"><script>\nx\n```', "<script", "&lt;script&gt;"),
        ('[a](https://example.org/ "\\"><script>")', "<script", "https://example.org/"),
        ("<!-- a comment -->", "<!--", "&lt;!--"),
    ],
)
def test_markdown_never_becomes_foreign_html(source: str, hidden: str, shown: str) -> None:
    html = notebook({"cell_type": "markdown", "source": source}).cells[0].html
    assert hidden not in html
    assert shown in html


def test_links_open_elsewhere_without_a_referrer() -> None:
    html = notebook({"cell_type": "markdown", "source": "[a](https://example.org/)"}).cells[0].html
    assert '<a href="https://example.org/" target="_blank" rel="noopener noreferrer nofollow">a</a>' in html


@pytest.mark.parametrize("encoded", ["not base64!", base64.b64encode(b"<svg onload=alert(1)>").decode(), 5, None])
def test_an_image_that_is_no_png_is_not_shown(encoded: object) -> None:
    output = {"output_type": "display_data", "data": {"image/png": encoded, "text/plain": "instead"}}
    assert notebook(code(output)).cells[0].outputs == (NotebookOutput("text", "instead"),)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b'{"cells": 5}', b'{"worksheets": []}', b"[" * 100_000, b"\xff\xfe", b"\x89PNG"],
)
def test_what_is_no_notebook_is_refused(content: bytes) -> None:
    with pytest.raises(NotebookError):
        read_notebook(content)


def test_parts_of_the_wrong_type_are_passed_over() -> None:
    shown = notebook(
        "text",  # type: ignore[arg-type]
        {"cell_type": "code", "source": 5, "outputs": "none", "execution_count": "<b>"},
        {"cell_type": "code", "outputs": [5, {"output_type": "display_data", "data": 5}, {"output_type": "error"}]},
        {"cell_type": ["markdown"]},
        metadata=[],
    )
    assert [cell.kind for cell in shown.cells] == ["code", "code", "raw"]
    assert (shown.cells[0].number, shown.cells[0].outputs) == ("", ())
    assert shown.cells[1].outputs == (NotebookOutput("error", ""),)


def test_long_notebooks_and_outputs_are_cut() -> None:
    shown = notebook(*[code({"output_type": "stream", "text": "x" * 100_000})] * (MAX_CELLS + 1))
    assert shown.is_cut
    assert len(shown.cells) == MAX_CELLS
    assert shown.cells[0].outputs[0].text.endswith("(cut)")
