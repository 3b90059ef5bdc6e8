"""Progress messages of the set-up, and its error class."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import SubprocessError
from typing import TextIO

from django.db import DatabaseError
from docker.errors import DockerException
from redis.exceptions import RedisError


class SetupError(Exception):
    """The set-up cannot continue on this machine; the message has the cause and what to do."""


class Progress:
    """Prints one line when a step begins and one when it is done, with the seconds that it took."""

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._title = "the start"

    @contextmanager
    def errors_explained(self) -> Iterator[None]:
        """Turn what the machine or a service refuses during the block into a SetupError that names the step."""
        try:
            yield
        except (DatabaseError, RedisError, DockerException, SubprocessError, OSError) as error:
            raise SetupError(
                f"the step {self._title!r} failed: {type(error).__name__}: {str(error).strip()}\n"
                "`make doctor` says what is missing or broken here, and what to do about it."
            ) from error

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Print the step, and after the block, unless it raises, its duration."""
        started = time.monotonic()
        self._title = title
        self.say(f"==> {title}")
        yield
        self.note(f"done in {time.monotonic() - started:.1f} s")

    def note(self, text: str) -> None:
        """Print a line about the current step."""
        self.say(f"    {text}")

    def say(self, text: str) -> None:
        """Print a line at once, also into a pipe."""
        self._output.write(f"{text}\n")
        self._output.flush()
