"""Tells the operator what the set-up is doing, and what is wrong in words to act on."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO


class SetupError(Exception):
    """Something on this machine stands in the way; the message says what, and what to do about it."""


class Progress:
    """Prints one line when a step begins and one when it is done, with the seconds that it took."""

    def __init__(self, output: TextIO) -> None:
        self._output = output

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Announce the step; when the block ends without an error, say how long it took."""
        started = time.monotonic()
        self.say(f"==> {title}")
        yield
        self.note(f"done in {time.monotonic() - started:.1f} s")

    def note(self, text: str) -> None:
        """Say something about the current step."""
        self.say(f"    {text}")

    def say(self, text: str) -> None:
        """Print a line at once, also into a pipe."""
        self._output.write(f"{text}\n")
        self._output.flush()
