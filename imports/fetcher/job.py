"""What is to be fetched and within which bounds, and how the program says how far it is: a JSON object a line."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from imports.fetcher.public_addresses import IPNetwork

MAX_RESULT_BYTES: Final = 12_000  # of the last line: engines split longer ones
PROGRESS_SECONDS: Final = 0.5
MAX_NOTES: Final = 20


class FetchError(Exception):
    """Nothing is fetched; the message says why, for the user."""


@dataclass
class Credential:
    """What is sent to one host alone: a token with its user name, or an SSH key."""

    host: str
    username: str = ""
    token: str = ""
    private_key: str = ""
    known_hosts: str = ""


@dataclass
class FetchJob:
    """One import. `target` is the directory that is to be there in the end, of a look a name that is not used."""

    id: str
    kind: str
    url: str
    target: Path
    ref: str = ""
    path: str = ""
    is_look: bool = False
    is_present: bool = False  # the tree is there already: only packages are installed
    whole_history: bool = False
    installs: bool = False
    image: str = ""  # of the session, on which installed packages depend
    networks: tuple[IPNetwork, ...] = ()
    credential: Credential | None = None
    max_bytes: int = 2**30
    max_files: int = 100_000
    stale: list[str] = field(default_factory=list)  # names beside the target that ended imports may have left
    notes: list[str] = field(default_factory=list)
    _shown_at: float = 0.0
    _written_bytes: int = 0
    _written_files: int = 0

    def note(self, sentence: str) -> None:
        """Remember a sentence for the user about what was left out."""
        if len(self.notes) < MAX_NOTES and sentence not in self.notes:
            self.notes.append(sentence)

    def show(self, words: str, fetched: int | None = None) -> None:
        """Say how far it is; with a size, unless something was said a moment ago."""
        now = time.monotonic()
        if fetched is None or now - self._shown_at >= PROGRESS_SECONDS:
            self._shown_at = now
            say({"progress": words[:150], "bytes": fetched or 0})

    def check_size(self, size: int, files: int = 0) -> None:
        """Raise FetchError if this is more than an import may have."""
        if size > self.max_bytes:
            raise FetchError(f"It is larger than {self.max_bytes // 2**20} MiB, which is the most that is fetched.")
        if files > self.max_files:
            raise FetchError(f"It has more than {self.max_files} files, which is the most that is fetched.")

    def count(self, size: int, files: int = 0) -> None:
        """Count what will be written beside what was. Raises FetchError if that is more than an import may have."""
        self._written_bytes += size
        self._written_files += files
        self.check_size(self._written_bytes, self._written_files)


def say(message: dict[str, Any]) -> None:
    """Print a line for the platform."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()
