"""The program `gpuplatform` as a process of its own."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from typer.testing import Result

from tests.live import ROOT
from tests.wait import SECONDS

Command = Callable[..., Result]  # runs the program in this process


class RunningProgram:
    """The program while it runs; what it has printed so far."""

    def __init__(self, url: str, token: str, home: Path, *arguments: str, path: str = "/usr/bin:/bin") -> None:
        environment = {
            **{"HOME": str(home), "PYTHONPATH": str(ROOT / "client"), "PATH": path, "COLUMNS": "200"},
            **{"GPUPLATFORM_URL": url, "GPUPLATFORM_TOKEN": token},
        }
        self.lines: list[str] = []
        self.messages: list[str] = []
        command = [sys.executable, "-m", "gpuplatform_client", *arguments]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, env=environment, stdout=pipe, stderr=pipe, text=True, preexec_fn=_take_interrupts
        )
        streams = ((self.process.stdout, self.lines), (self.process.stderr, self.messages))
        self._readers = [threading.Thread(target=_collect, args=each, daemon=True) for each in streams]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(SECONDS)
        for reader in self._readers:
            reader.join(SECONDS)
        for stream in (self.process.stdout, self.process.stderr):
            if stream:
                stream.close()

    def wait(self) -> int:
        """Return the exit code."""
        code = self.process.wait(SECONDS)
        for reader in self._readers:
            reader.join(SECONDS)
        return code

    def has(self, line: str) -> bool:
        """Return whether the line was printed."""
        return f"{line}\n" in self.lines


def _take_interrupts() -> None:
    """Undo what a shell does to programs in its background, which ignore interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _collect(stream: "Iterator[str]", lines: list[str]) -> None:
    lines.extend(stream)
