"""Writes `.env` from `.env.example` with a secret key of its own. Standard library only; run as a script by make."""

import contextlib
import os
import re
import secrets
import sys
from pathlib import Path

SECRET_LINE = re.compile(r"^SECRET_KEY=.*$", re.MULTILINE)


def text_with_secret(example: str) -> str:
    """Return the text of `.env.example` with a fresh random SECRET_KEY. Raise ValueError if it has no place for one."""
    text, count = SECRET_LINE.subn(f"SECRET_KEY={secrets.token_urlsafe(50)}", example)
    if count != 1:
        raise ValueError("the example must have exactly one line that begins with SECRET_KEY=")
    return text


def write(target: Path, example: Path) -> bool:
    """Write `target`, readable by its owner alone, and return True; an existing file is left alone.

    It appears whole or not at all, so that a set-up that was interrupted can be run again.
    """
    draft = target.with_name(f"{target.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text_with_secret(example.read_text()))
        with contextlib.suppress(FileExistsError):
            os.link(draft, target)
            return True
        return False
    finally:
        draft.unlink()


if __name__ == "__main__":
    if write(Path(".env"), Path(".env.example")):
        sys.stdout.write("==> .env written with a new SECRET_KEY; every setting is explained in it\n")
