"""The key by which SSH clients know this platform again: a file that all fronts of an installation share."""

import os
from contextlib import suppress
from pathlib import Path
from tempfile import mkstemp
from typing import Final

import asyncssh

NAME: Final = "ssh_host_ed25519_key"


def load_host_key(folder: Path) -> asyncssh.SSHKey:
    """Return the host key in `folder`, made where there is none; whoever comes second takes the first one's.

    Raises OSError, or asyncssh.KeyImportError for a file that is no key.
    """
    path = folder / NAME
    if not path.exists():
        _make(path)
    return asyncssh.read_private_key(path)


def _make(path: Path) -> None:
    """Write a new key and give it its name in one step, so that no half of a key is ever read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    key = asyncssh.generate_private_key("ssh-ed25519", comment="GPU Platform")
    descriptor, draft = mkstemp(prefix=f"{path.name}.", dir=path.parent)  # for our own user alone
    try:
        with open(descriptor, "wb") as file:
            file.write(key.export_private_key())
            file.flush()
            os.fsync(descriptor)
        with suppress(FileExistsError):  # another was quicker
            os.link(draft, path)
    finally:
        os.unlink(draft)
