"""OpenSSH's own client programs, as a user of the server would run them."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.wait import SECONDS


@dataclass(frozen=True)
class SshClient:
    """A user with a folder for keys, and the port of the server."""

    folder: Path
    port: int

    def new_key(self, name: str = "id", *options: str) -> str:
        """Make a key pair of this name and return the public half."""
        path = self.folder / name
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path, *options], check=True)
        return path.with_name(f"{name}.pub").read_text()

    def options(self, key: str = "id") -> list[str]:
        """Return options with which nothing of this machine's own configuration counts."""
        settings = {
            "StrictHostKeyChecking": "no",
            "UserKnownHostsFile": str(self.folder / "known_hosts"),
            "IdentitiesOnly": "yes",
            "IdentityAgent": "none",
            "IdentityFile": str(self.folder / key),
            "BatchMode": "yes",
            "LogLevel": "INFO",
        }
        return ["-F", "none", *(part for name, value in settings.items() for part in ("-o", f"{name}={value}"))]

    def command(self, session: str, *words: str, key: str = "id") -> list[str]:
        """Return the command line of ssh."""
        return ["ssh", *self.options(key), "-p", str(self.port), f"{session}@127.0.0.1", *words]

    def run(self, session: str, *words: str, key: str = "id", **options: Any) -> subprocess.CompletedProcess[Any]:
        """Run a command in the session."""
        return run(self.command(session, *words, key=key), **options)

    def sftp(self, session: str, batch: str, key: str = "id") -> subprocess.CompletedProcess[Any]:
        """Run lines of sftp's commands."""
        return run(["sftp", *self.options(key), "-P", str(self.port), "-b", "-", f"{session}@127.0.0.1"], input=batch)

    def scp(self, *paths: str, key: str = "id") -> subprocess.CompletedProcess[Any]:
        """Copy files, those of a session written as <session>@127.0.0.1:<path>."""
        return run(["scp", *self.options(key), "-P", str(self.port), *paths])

    @contextmanager
    def terminal(self, session: str, columns: int = 80, rows: int = 24, key: str = "id") -> Iterator["Terminal"]:
        """Run an interactive shell in a window of this size."""
        terminal = Terminal(self.command(session, "-tt", key=key), columns, rows)
        try:
            yield terminal
        finally:
            terminal.close()


class Terminal:
    """A program in a window of its own."""

    def __init__(self, command: list[str], columns: int, rows: int) -> None:
        self._master, slave = pty.openpty()
        self.resize(columns, rows)
        environment = {**os.environ, "TERM": "xterm-256color"}
        self._process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment, preexec_fn=self._take
        )
        os.close(slave)

    @staticmethod
    def _take() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def type(self, text: str) -> None:
        """Send keystrokes."""
        os.write(self._master, text.encode())

    def read_until(self, text: str) -> str:
        """Return the output up to and including `text`."""
        output, deadline = b"", time.monotonic() + SECONDS
        while text.encode() not in output:
            ready, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"no {text!r} in time: {output!r}"
            try:
                output += os.read(self._master, 65536)
            except OSError:  # the program has ended
                raise AssertionError(f"ended before {text!r}: {output!r}") from None
        return output.decode(errors="replace")

    def resize(self, columns: int, rows: int) -> None:
        """Change the window; the program is told by the system."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def exit_code(self) -> int:
        """Return how the program ended, once it has."""
        return self._process.wait(SECONDS)

    def close(self) -> None:
        """Close the window."""
        self._process.kill()
        self._process.wait()
        os.close(self._master)


def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[Any]:
    """Run a program to its end and return what it said, as text unless `text` is False."""
    if "input" not in options:
        options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run(command, **{"capture_output": True, "text": True, "timeout": SECONDS, **options})
