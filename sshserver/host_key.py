"""The host key by which SSH clients recognize this platform: one file for all SSH servers of an installation."""

import os
from contextlib import suppress
from pathlib import Path
from tempfile import mkstemp
from typing import Final

import asyncssh

NAME: Final = "ssh_host_ed25519_key"


def load_host_key(folder: Path) -> asyncssh.SSHKey:
    """Return the host key in `folder`; create it if there is none, unless another process does so first.

    Raises OSError, or asyncssh.KeyImportError for a file that is no key.
    """
    path = folder / NAME
    if not path.exists():
        _make(path)
    return asyncssh.read_private_key(path)


def _make(path: Path) -> None:
    """Write a new key, and name it atomically, so that no process reads an incomplete file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    key = asyncssh.generate_private_key("ssh-ed25519", comment="GPU Platform")
    descriptor, draft = mkstemp(prefix=f"{path.name}.", dir=path.parent)  # mode 600
    try:
        with open(descriptor, "wb") as file:
            file.write(key.export_private_key())
            file.flush()
            os.fsync(descriptor)
        with suppress(FileExistsError):  # another process has created it
            os.link(draft, path)
    finally:
        os.unlink(draft)
