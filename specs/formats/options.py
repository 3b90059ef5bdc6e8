"""Options in comment lines at the top of a script, as `#SBATCH` and `#GP` have them."""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from django.utils.translation import gettext as _

from specs.problems import SpecError, SpecProblem

DIRECTIVE: Final = re.compile(r"^#(?P<mark>GP|SBATCH)(?:\s+(?P<rest>.*))?$")
FLAG: Final = "true"  # the value of an option without one


class ScriptOption(NamedTuple):
    """An option at a line of a script."""

    line: int
    name: str  # as of the long form: `cpus-per-task`
    value: str
    text: str  # as it is written


def is_script(text: str) -> bool:
    """Return whether a text is a script, and no YAML."""
    return text.startswith("#!") or any(DIRECTIVE.match(line) for _number, line in _top(text))


def options_of(text: str, mark: str, short: Mapping[str, str], flags: frozenset[str]) -> Iterator[ScriptOption]:
    """Yield the options of the lines with this mark, above the first command. Raises SpecError.

    `short` has the long names of letters, and `flags` the options without a value.
    """
    for number, line in _top(text):
        found = DIRECTIVE.match(line)
        if found and found["mark"] == mark:
            try:
                words = shlex.split(found["rest"] or "", comments=True)
            except ValueError:
                raise SpecError([SpecProblem(number, f"#{mark}", _("A quotation mark has no end."))]) from None
            yield from _options(number, words, short, flags)


def _top(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines above the first command."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            return
        yield number, line.rstrip()


def _options(line: int, words: list[str], short: Mapping[str, str], flags: frozenset[str]) -> Iterator[ScriptOption]:
    rest = iter(words)
    for word in rest:
        name, equals, value = word.lstrip("-").partition("=")
        if word.startswith("-") and not word.startswith("--"):
            name, equals, value = short.get(word[1:2], word[1:2]), word[2:], word[2:].removeprefix("=")
        if name in flags or not word.startswith("-"):
            yield ScriptOption(line, name, value or FLAG, word)
        elif equals:
            yield ScriptOption(line, name, value, word)
        else:
            value = next(rest, "")
            yield ScriptOption(line, name, value, f"{word} {value}".strip())
