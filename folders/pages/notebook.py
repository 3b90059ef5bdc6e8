"""Renders Jupyter notebooks (nbformat 4) as parts that are safe to show on a page. No Django.

Source and text outputs are plain text, to be escaped where they are shown. Markdown becomes HTML that markdown-it-py
writes with raw HTML switched off; of outputs only text and PNG are shown.
"""

import base64
import binascii
import html
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

MAX_CELLS: Final = 500
MAX_TEXT_LENGTH: Final = 50_000  # characters of one source or output
PNG_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_TERMINAL_CODE: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_WEB_LINK: Final = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)


class NotebookError(Exception):
    """The bytes are no notebook that can be shown."""


@dataclass(frozen=True, slots=True)
class NotebookOutput:
    """One output of a code cell: `text`, or for an image its data URI."""

    kind: Literal["text", "error", "image"]
    text: str


@dataclass(frozen=True, slots=True)
class NotebookCell:
    """A cell; `html` is safe HTML and only of markdown cells, `source` plain text."""

    kind: Literal["markdown", "code", "raw"]
    source: str
    html: str = ""
    number: str = ""
    outputs: tuple[NotebookOutput, ...] = ()


@dataclass(frozen=True, slots=True)
class Notebook:
    """A notebook's cells; `is_cut` if it has more than are shown."""

    language: str
    cells: tuple[NotebookCell, ...]
    is_cut: bool


def read_notebook(content: bytes) -> Notebook:
    """Return the notebook in a file's bytes. Raises NotebookError."""
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise NotebookError("This file is not valid JSON, so it is not a notebook.") from error
    if not isinstance(data, dict) or not isinstance(data.get("cells"), list):
        raise NotebookError("This file has no cells in the format of Jupyter notebooks (version 4).")
    cells = [cell for cell in data["cells"] if isinstance(cell, dict)]
    return Notebook(language=_language(data), cells=tuple(map(_cell, cells[:MAX_CELLS])), is_cut=len(cells) > MAX_CELLS)


def _language(data: dict[str, Any]) -> str:
    try:
        return str(data["metadata"]["language_info"]["name"])[:30]
    except (KeyError, TypeError):
        return ""


def _cell(data: dict[str, Any]) -> NotebookCell:
    source = _text(data.get("source"))
    kind = data.get("cell_type")
    if kind == "markdown":
        return NotebookCell("markdown", source, html=_markdown().render(source))
    if kind == "code":
        count = data.get("execution_count")
        outputs = data.get("outputs")
        known = [each for each in outputs if isinstance(each, dict)] if isinstance(outputs, list) else []
        number = str(count) if isinstance(count, int) else ""
        return NotebookCell("code", source, number=number, outputs=tuple(_outputs(known)))
    return NotebookCell("raw", source)


def _outputs(outputs: Sequence[dict[str, Any]]) -> Iterator[NotebookOutput]:
    for output in outputs:
        data = output.get("data")
        if output.get("output_type") == "stream":
            yield NotebookOutput("text", _text(output.get("text")))
        elif output.get("output_type") == "error":
            trace = output.get("traceback")
            lines = [line for line in trace if isinstance(line, str)] if isinstance(trace, list) else []
            yield NotebookOutput("error", _text("\n".join(lines) or output.get("evalue")))
        elif isinstance(data, dict):
            png = _png(data.get("image/png"))
            yield NotebookOutput("image", png) if png else NotebookOutput("text", _text(data.get("text/plain")))


def _png(encoded: object) -> str:
    """Return a data URI for base64 text that holds a PNG file, else ""."""
    try:
        content = base64.b64decode("".join(_text(encoded, limit=None).split()), validate=True)
    except (binascii.Error, ValueError):
        return ""
    if not content.startswith(PNG_SIGNATURE):
        return ""
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


def _text(value: object, limit: int | None = MAX_TEXT_LENGTH) -> str:
    """Return text that nbformat stores as a string or a list of lines, without terminal codes and cut at `limit`."""
    parts = value if isinstance(value, list) else [value]
    text = "".join(part for part in parts if isinstance(part, str))
    if limit is not None and len(text) > limit:
        text = f"{text[:limit]}\n… (cut)"
    return _TERMINAL_CODE.sub("", text)


def _markdown() -> MarkdownIt:
    markdown = MarkdownIt("js-default", {"html": False, "linkify": False})
    markdown.validateLink = lambda url: bool(_WEB_LINK.match(url))  # type: ignore[method-assign]
    markdown.add_render_rule("link_open", _link)
    markdown.add_render_rule("image", _image)
    return markdown


def _link(self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    tokens[index].attrSet("target", "_blank")
    tokens[index].attrSet("rel", "noopener noreferrer nofollow")
    return self.renderToken(tokens, index, options, env)


def _image(self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    """Return the alternative text: an image would be loaded from anywhere."""
    return f"<em>[image: {html.escape(tokens[index].content) or 'without a description'}]</em>"
