"""The folder of a socket: who owns it can put a server of his own there, which would be taken for ours."""

import os
import tempfile
from pathlib import Path


def ensure(folder: Path) -> None:
    """Make the folder, for its owner alone. Raises PermissionError where it is somebody else's in a common folder."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    is_common = folder.parent == Path(tempfile.gettempdir())  # elsewhere the folders above protect it
    if is_common and (folder.is_symlink() or folder.stat().st_uid != os.geteuid()):
        raise PermissionError(f"{folder}, where sockets belong, is another user's. Set COMPUTE_VAR_DIR shorter.")
