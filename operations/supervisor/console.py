"""The lines of the supervised processes: shown in the order in which they come, and the newest of each kept."""

import asyncio
from collections import defaultdict, deque
from contextlib import suppress
from typing import Final, TextIO

from operations.services.base import MAX_LINES

CHUNK: Final = 65536
DRAIN_SECONDS: Final = 2.0
COLOURS: Final = (36, 33, 32, 35, 34)  # of the prefixes, on a terminal


class Console:
    """Shows lines on `output`, each behind the name of its process; names are as wide as the widest of `names`."""

    def __init__(self, output: TextIO, names: list[str]) -> None:
        self._output = output
        width = max(len(name) for name in names)
        self._prefixes = {name: f"{name:<{width}} | " for name in names}
        if output.isatty():
            for index, name in enumerate(names):
                self._prefixes[name] = f"\033[{COLOURS[index % len(COLOURS)]}m{self._prefixes[name]}\033[0m"
        self._lines: defaultdict[str, deque[str]] = defaultdict(lambda: deque(maxlen=MAX_LINES))
        self._relays: set[asyncio.Task[None]] = set()

    def follow(self, name: str, stream: asyncio.StreamReader) -> None:
        """Show the lines of a process from now on."""
        relay = asyncio.create_task(self._relay(name, stream))
        self._relays.add(relay)
        relay.add_done_callback(self._relays.discard)

    async def drain(self) -> None:
        """Show what is left of processes that have ended; what they have left behind may hold their output open."""
        if self._relays:
            await asyncio.wait(self._relays, timeout=DRAIN_SECONDS)

    def newest(self, name: str, count: int) -> list[str]:
        """Return the newest lines of a process."""
        return list(self._lines[name])[-count:]

    def say(self, line: str) -> None:
        """Show a line of the supervisor's own."""
        with suppress(OSError):  # the terminal may be closed, and the processes must be stopped nonetheless
            self._output.write(f"{line}\n")
            self._output.flush()

    async def _relay(self, name: str, stream: asyncio.StreamReader) -> None:
        """Show the lines of a stream; one that is longer than a chunk is shown in parts."""
        rest = b""
        while chunk := await stream.read(CHUNK):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > CHUNK:
                lines, rest = [*lines, rest], b""
            for line in lines:
                self._show(name, line)
        if rest:
            self._show(name, rest)

    def _show(self, name: str, line: bytes) -> None:
        text = line.decode(errors="replace")
        self._lines[name].append(text)
        self.say(self._prefixes[name] + text)
