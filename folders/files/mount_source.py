"""The directory of a folder as a host worker hands it to the container engine. No Django."""

import os
from contextlib import ExitStack
from pathlib import Path

from folders.files.folder_files import FILES


def mount_source(root_path: str, owner_id: int, folder_id: str) -> Path:
    """Return the directory that sessions mount, after a look at every component below the root.

    Each must be a directory and no symbolic link. Nothing but the platform can write to those above the last, so that
    the engine, which looks at the path again, finds the same. Raises FileNotFoundError, NotADirectoryError, or OSError
    where it cannot be looked at.
    """
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    components = (str(owner_id), folder_id, FILES)
    with ExitStack() as opened:
        directory = os.open(root_path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        opened.callback(os.close, directory)
        for component in components:
            directory = os.open(component, flags, dir_fd=directory)
            opened.callback(os.close, directory)
    return Path(root_path, *components)
