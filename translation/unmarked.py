"""Texts that people read and that are not marked for translation. For development; tests hold the product free of them.

Heuristic: what is no text for people, such as an example that is the same in every language, stands in `<code>` or in
`SAME_IN_EVERY_LANGUAGE`.
"""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Final

from babel.messages.jslexer import Token as ScriptToken
from babel.messages.jslexer import tokenize
from django.template.base import Lexer, TokenType

SAME_IN_EVERY_LANGUAGE: Final = re.compile(
    r"\b(GPU Platform|fGPU|GPUs?|CPU|RAM|UTC|SSH|SFTP|API|GiB|MiB|MB|ID|URL|Jupyter|TensorBoard|VS Code|Dockerfile|apt"
    r"|home/work|NAME|pip|conda|Python|Docker|Ctrl|Shift|Alt|Esc|Enter|Tab|Home|End|Page Up|Page Down|shm|CSV|OK"
    r"|GET|POST|PUT|PATCH|DELETE|HEAD|Authorization|Bearer|English|PENDING|SCHEDULED|PREPARING|RUNNING|TERMINATING|TERMINATED|CANCELLED|ERROR|SUCCESS)\b"
)
_WORD: Final = re.compile(r"[A-Za-z]{2,}")
_TEXT_ATTRIBUTES: Final = {
    "title",
    "aria-label",
    "aria-description",
    "placeholder",
    "alt",
    "data-title",
    "data-confirm",
}
_UNREAD_ELEMENTS: Final = {"code", "kbd", "pre", "samp", "script", "style"}
_TEXT_ARGUMENT: Final = re.compile(r"\b(?:label|title|help|text|heading|hint|note|unit|confirm)=(\"[^\"]*\"|'[^']*')")
_ENGLISH_FILTER: Final = re.compile(r"\|(?:pluralize|yesno|default(?:_if_none)?:[\"'][A-Z ])")


def in_template(source: str) -> Iterator[str]:
    """Yield the unmarked texts of a template: between tags, in attributes, and given to included templates."""
    html, is_marked = [], False
    source = re.sub(r"\{% block (?:\w*class|coltype) %\}[\w -]*\{% endblock %\}", "", source)
    for token in Lexer(re.sub(r"\{% comment.*?endcomment %\}", "", source, flags=re.DOTALL)).tokenize():
        if token.token_type == TokenType.TEXT:
            html.append("" if is_marked else token.contents)
            continue
        if token.token_type == TokenType.BLOCK:
            command, *_ = token.contents.split()
            is_marked = command in {"blocktranslate", "blocktrans"} or (
                is_marked and command not in {"endblocktranslate", "endblocktrans"}
            )
            yield from (text for text in _TEXT_ARGUMENT.findall(token.contents) if _is_text(text))
        if token.token_type != TokenType.COMMENT:
            yield from (token.contents for _ in _ENGLISH_FILTER.findall(token.contents))
    parser = _TextParser()
    parser.feed("".join(html))
    parser.close()
    yield from parser.found


def in_script(source: str) -> Iterator[str]:
    """Yield the unmarked texts of a script: capitalized words and sentences that are not given to `gettext`."""
    calls: list[bool] = []  # for each open bracket, whether it is that of a call of gettext or ngettext
    previous = ScriptToken("operator", "", 0)
    for token in tokenize(source, template_string=True):
        if token.type in {"linecomment", "multilinecomment"}:
            continue
        if token.type == "operator" and token.value in "([{":
            calls.append(token.value == "(" and previous.type == "name" and previous.value in {"gettext", "ngettext"})
        elif token.type == "operator" and token.value in ")]}" and calls:
            calls.pop()
        elif token.type in {"string", "template_string"} and not (calls and calls[-1]) and _is_script_text(token.value):
            yield token.value
        previous = token


def _is_text(text: str) -> bool:
    return _WORD.search(SAME_IN_EVERY_LANGUAGE.sub("", text)) is not None


class _TextParser(HTMLParser):
    """Collects text and the attributes that people read."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self._unread: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Check the attributes; begin an element whose content is no prose."""
        self.found += [
            f'{name}="{value}"' for name, value in attrs if name in _TEXT_ATTRIBUTES and _is_text(value or "")
        ]
        if (
            tag == "input"
            and dict(attrs).get("type") in {"submit", "button"}
            and _is_text(dict(attrs).get("value") or "")
        ):
            self.found.append(dict(attrs)["value"] or "")
        if tag in _UNREAD_ELEMENTS:
            self._unread.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """End such an element."""
        if self._unread and self._unread[-1] == tag:
            self._unread.pop()

    def handle_data(self, data: str) -> None:
        """Check a text."""
        if not self._unread and _is_text(data):
            self.found.append(" ".join(data.split()))


_SCRIPT_SENTENCE: Final = re.compile(r"^.?[A-Z][a-z]+( |…|\.|$)|[a-z] [a-z]+ [a-z]+ |^(%|\$\{[^}]*\})[^<#]* [a-z]{2,}")
_SELECTOR: Final = re.compile(
    r"[#\[\].>{]|^[a-z]+( [a-z]+)*$|^[A-Z][A-Za-z0-9]*-|^#"
    r"|^(Enter|Escape|Tab|Delete|Home|End|Files|Insert|Notification)$"
)


def _is_script_text(literal: str) -> bool:
    text = literal[1:-1]
    plain = re.sub(r"\$\{[^}]*\}", "", text)
    if _SELECTOR.search(plain.replace(". ", " ").rstrip(".…")) and not re.match(r"[A-Z][a-z']+ [a-z]", plain):
        return False
    return _is_text(plain) and _SCRIPT_SENTENCE.search(text) is not None
