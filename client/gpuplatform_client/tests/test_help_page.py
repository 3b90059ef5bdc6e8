"""The page of the command line names every command, each with options that it has."""

import re
from collections.abc import Iterator
from typing import Any, Final

import pytest
from typer.main import get_command

from gpuplatform_client.cli.app import app
from gpuplatform_client.cli.exit_codes import MEANINGS
from tests.live import ROOT

ROW: Final = re.compile(r"^\| (`.+?) \| .+ \|$", re.MULTILINE)
PAGES: Final = ("docs/help/command-line.md", "docs/ko/help/command-line.md")


def commands(found: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the words and the object of each command that is no group."""
    inner = getattr(found, "commands", None)
    if inner is None:
        yield words, found
    for name, each in (inner or {}).items():
        yield from commands(each, (*words, name))


COMMANDS: Final = dict(commands(get_command(app)))


def named(page: str) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Yield the words of each command of the tables, and the options with it.

    One that is named without the words of its group is of the group before it in its row.
    """
    for row in ROW.findall((ROOT / page).read_text()):
        before: tuple[str, ...] = ()
        for span in re.findall(r"`([^`]+)`", row):
            words = tuple(span.split())
            options = [word for word in words if re.fullmatch("--?[a-z][a-z-]*", word)]
            groups = [before[:length] for length in range(len(before), -1, -1)]
            fitting = ((*group, *words[:length]) for group in groups for length in range(len(words), 0, -1))
            if not words[0].startswith("-"):  # else an option of the command before it
                before = next((each for each in fitting if each in COMMANDS), words)
            yield before, options


@pytest.mark.parametrize("page", PAGES)
def test_the_page_names_every_command_with_options_it_has(page: str) -> None:
    found = list(named(page))
    for words, options in found:
        assert words in COMMANDS, f"there is no command {' '.join(words)}"
        known = {option for each in COMMANDS[words].params for option in (*each.opts, *each.secondary_opts)}
        assert {*options} <= known, words
    assert COMMANDS.keys() - {words for words, _ in found} == set(), "commands that the page does not name"


@pytest.mark.parametrize("page", PAGES)
def test_the_page_has_all_exit_codes(page: str) -> None:
    rows = re.findall(r"^\| ([0-9]+) \| (.+) \|$", (ROOT / page).read_text(), re.MULTILINE)
    assert [int(code) for code, _ in rows] == list(MEANINGS)
    if page == PAGES[0]:
        assert [meaning for _, meaning in rows] == list(MEANINGS.values())
