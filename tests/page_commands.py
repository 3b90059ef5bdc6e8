"""Commands of the documents, done on machines as their readers would: whole blocks, and those named in passing."""

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.systemd_machine import ROOT, SystemdMachine

MARKDOWN: Final = MarkdownIt("commonmark").enable("table")
PROGRAMS: Final = (
    *("apt-get", "curl", "docker", "gpuplatform", "gpuplatform-manage", "journalctl", "make", "manage.py", "nginx"),
    *("promtool", "systemctl", "usermod"),
)
# A code span is a command if it begins with a program.
IS_COMMAND: Final = re.compile(rf"({'|'.join(map(re.escape, PROGRAMS))}) [^.].*")


@dataclass(frozen=True, slots=True)
class PageCommand:
    """What a page has its reader type in: a block, or a span of its text."""

    page: str
    heading: str
    text: str
    is_block: bool


def commands_of(page: str) -> list[PageCommand]:
    """Return the commands of a page in their order: indented blocks, and spans that begin with a program."""
    found: list[PageCommand] = []
    heading = ""
    for token in _tokens(page):
        if token.type == "heading":
            heading = token.content
        elif token.type == "code_block" or IS_COMMAND.fullmatch(token.content):
            found.append(PageCommand(page, heading, token.content.strip(), token.type == "code_block"))
    return found


def example_of(page: str, language: str) -> str:
    """Return the only fenced block of a page in a language, such as nginx's."""
    (found,) = [token.content for token in _tokens(page) if token.type == "fence" and token.info == language]
    return found


def _tokens(page: str) -> Iterator[Token]:
    """Yield blocks and code spans; headings as tokens of the type `heading`."""
    previous = ""
    for token in MARKDOWN.parse((ROOT / f"docs/{page}.md").read_text()):
        if token.type == "inline" and previous == "heading_open":
            yield Token("heading", "", 0, content=token.content)
        yield from (
            child for child in (token.children or [token]) if child.type in {"code_inline", "code_block", "fence"}
        )
        previous = token.type


@dataclass
class PageReader:
    """Somebody who follows the pages and writes down what they did, and how long it took."""

    done: set[PageCommand] = field(default_factory=set)
    taken: list[tuple[str, int, float]] = field(default_factory=list)

    def do(
        self,
        machine: SystemdMachine,
        page: str,
        heading: str,
        number: int = 0,
        values: Mapping[str, str] = MappingProxyType({}),
    ) -> str:
        """Do the block of this number below a heading, with values in place of its examples; return its output."""
        blocks = [each for each in commands_of(page) if each.heading == heading and each.is_block]
        return self._run(machine, blocks[number], values)

    def name(self, machine: SystemdMachine, page: str, text: str) -> str:
        """Do a command that the text of a page names; return its output."""
        spans = [each for each in commands_of(page) if each.text == text and not each.is_block]
        self.done.update(spans)
        return self._run(machine, spans[0], {})

    def _run(self, machine: SystemdMachine, command: PageCommand, values: Mapping[str, str]) -> str:
        text = command.text
        for example, value in values.items():
            text = text.replace(example, value)
        began = time.monotonic()
        output = machine.run(f"cd /root\n{text}")
        place = f"{command.page}, {command.heading}"
        self.taken.append((place, command.text.count("\n") + 1, time.monotonic() - began))
        self.done.add(command)
        return output
