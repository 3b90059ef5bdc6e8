"""Rules of folder names and of the paths at which sessions mount them. Pure."""

import re
from typing import Final

HOME: Final = "/home/work"  # of the user in every session; folders are mounted below it
MAX_NAME_LENGTH: Final = 64
NAME: Final = re.compile(r"\.?[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_-])?")
AUTOMOUNT_PREFIX: Final = "."  # folders whose name begins so are mounted in every session of their owner
SFTP_LOGIN: Final = "data"  # by which SFTP reaches the folders; no session may have this name
# Below HOME these are the platform's or the image's: keys, shell start-up files, what apps write for themselves.
RESERVED_NAMES: Final = frozenset(
    {".bash_history", ".bash_logout", ".bash_profile", ".bashrc", ".gnupg", ".profile", ".ssh", ".tmux.conf"}
    | {".hushlogin", ".sudo_as_admin_successful", "id_container", "id_container.pub"}
)


def folder_name_error(name: str) -> str:
    """Return why a folder cannot have this name, "" if it can."""
    if not name:
        return "Give the folder a name."
    if len(name) > MAX_NAME_LENGTH:
        return f"A name has at most {MAX_NAME_LENGTH} characters."
    if not NAME.fullmatch(name):
        return (
            "Use letters, digits, - _ and . only; begin with a letter, a digit or one dot, and do not end with a dot."
        )
    if name.lower() in RESERVED_NAMES:
        return f"{name} is reserved: sessions have a file or directory of this name in their home directory."
    return ""
