"""Texts with placeholders such as %(host)s, recognized in time that grows as the text does. Pure.

A regular expression would try every way in which the words between the placeholders can be found: a power of the length
of a text, in which there may be a user's own words.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

PLACEHOLDER: Final = re.compile(r"%\((\w+)\)s")
_NUMBERS: Final = {"all", "count", "done"}  # placeholders that stand for numbers alone
_NO_NUMBER: Final = re.compile(r"[^\d.,]")
_NEXT_SENTENCE: Final = re.compile(r"[.!?] [A-Z]")  # which no value goes beyond


class TextPattern:
    """A text whose placeholders stand for at least one character each, and for as few as possible."""

    def __init__(self, text: str) -> None:
        self.text = text
        parts = PLACEHOLDER.split(text)
        self._beginning, *self._literals = [part.replace("%%", "%") for part in parts[::2]]
        self._names = parts[1::2]

    def values_in(self, text: str) -> dict[str, str] | None:
        """Return the values of the placeholders in a text; None if it is another text."""
        if not self._names:
            return {} if text == self._beginning else None
        if not (text.startswith(self._beginning) and text.endswith(self._literals[-1])):
            return None
        places = _Places(text, self._names, self._literals)
        values, start = {}, len(self._beginning)
        for number, name in enumerate(self._names):
            end = places.end_of(number, start)
            if end is None:
                return None
            values[name] = text[start:end]
            start = end + len(self._literals[number])
        return values


class _Places:
    """Where in a text the value of each placeholder may end, so that all behind it is found, too."""

    def __init__(self, text: str, names: list[str], literals: list[str]) -> None:
        """Each name is followed by the literal of the same number."""
        no_number = [found.start() for found in _NO_NUMBER.finditer(text)] if _NUMBERS & set(names) else []
        next_sentence = [found.start() for found in _NEXT_SENTENCE.finditer(text)]
        self._bars = [no_number if name in _NUMBERS else next_sentence for name in names]
        self._ends: list[list[int]] = [[] for _ in names]
        self._ends[-1] = [len(text) - len(literals[-1])]
        for number in range(len(names) - 2, -1, -1):
            literal = literals[number]
            self._ends[number] = [
                place
                for place in _occurrences(text, literal)
                if self.end_of(number + 1, place + len(literal)) is not None
            ]

    def end_of(self, number: int, start: int) -> int | None:
        """Return where the value that begins at `start` ends; None if it cannot begin there."""
        ends, bars = self._ends[number], self._bars[number]
        nearest = bisect_left(ends, start + 1)
        if nearest == len(ends):
            return None
        bar = bisect_left(bars, start)
        return None if bar < len(bars) and bars[bar] < ends[nearest] else ends[nearest]


def _occurrences(text: str, literal: str) -> Iterator[int]:
    place = text.find(literal)
    while place != -1:
        yield place
        place = text.find(literal, place + 1)
