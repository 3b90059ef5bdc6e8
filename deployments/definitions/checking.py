"""Checks values of a definition file, and collects what is wrong with its line, its field and what is allowed."""

import re
from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal
from typing import Final

from deployments.definitions.drafts import Mistake
from deployments.definitions.located import Located

_NUMBER: Final = re.compile(r"-?[0-9]{1,12}(\.[0-9]{1,6})?")


class Checker:
    """Reads fields one by one; a wrong one becomes a mistake, and nothing is returned for it."""

    def __init__(self) -> None:
        self.mistakes: list[Mistake] = []

    def refuse(self, at: Located, name: str, message: str) -> None:
        """Take note of a mistake."""
        self.mistakes.append(Mistake(at.line, name, message))

    def fields(
        self, at: Located, name: str, allowed: Collection[str], required: Collection[str] = ()
    ) -> Mapping[str, Located]:
        """Return the fields of a mapping that have a value."""
        if not isinstance(at.value, Mapping):
            self.refuse(at, name, f"Write fields here: {', '.join(allowed)}.")
            return {}
        found = {key: each for key, each in at.value.items() if each.value is not None}
        for key, each in at.value.items():
            if key not in allowed:
                shown = _joined(name, key if len(key) <= 60 else f"{key[:60]}…")
                self.refuse(each, shown, f"There is no such field; there are {', '.join(allowed)}.")
        for key in required:
            if key not in found:
                self.refuse(at, _joined(name, key), "This is needed.")
        return {key: each for key, each in found.items() if key in allowed}

    def items(self, at: Located | None, name: str) -> Iterator[tuple[Located, str]]:
        """Yield the items of a list with their names; none of what is not there."""
        if at is None:
            return
        if not isinstance(at.value, list):
            self.refuse(at, name, "Write a list here, each item after a hyphen.")
            return
        for index, each in enumerate(at.value):
            yield each, f"{name}[{index}]"

    def text(self, at: Located | None, name: str, most: int = 1024) -> str:
        """Return a text, or a number as it is written; "" for what is not there."""
        if at is None:
            return ""
        if isinstance(at.value, bool) or not isinstance(at.value, str | int | Decimal):
            self.refuse(at, name, "Write a text here.")
            return ""
        text = str(at.value).strip()
        if not text or len(text) > most or "\0" in text:
            self.refuse(at, name, f"Write a text of 1 to {most} characters.")
            return ""
        return text

    def number(self, at: Located | None, name: str, bounds: tuple[int, int]) -> float | None:
        """Return a number within bounds; None for what is not there."""
        if at is None:
            return None
        low, high = bounds
        text = "" if isinstance(at.value, bool) else str(at.value)
        if not _NUMBER.fullmatch(text) or not low <= float(text) <= high:
            self.refuse(at, name, f"Choose a number from {low} to {high}.")
            return None
        return float(text)

    def whole(self, at: Located | None, name: str, bounds: tuple[int, int]) -> int | None:
        """Return a whole number within bounds; None for what is not there."""
        found = self.number(at, name, bounds)
        if at is not None and found is not None and found != int(found):
            self.refuse(at, name, "Choose a whole number.")
            return None
        return None if found is None else int(found)


def _joined(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key
