"""The platform and token of the command line: of the environment, else as `gpuplatform login` stored them.

Without either, the platform is the one that the program was downloaded from.
"""

import json
import os
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path

import typer

URL_VARIABLE = "GPUPLATFORM_URL"
TOKEN_VARIABLE = "GPUPLATFORM_TOKEN"  # noqa: S105  # the name of a variable
_PLATFORM = resources.files("gpuplatform_client") / "platform_url.txt"  # in what a platform offers


@dataclass(frozen=True, slots=True)
class StoredLogin:
    """Where the platform is, and a token of its API."""

    url: str = ""
    token: str = ""


def load() -> StoredLogin:
    """Return what the environment says, and the file for the rest; a file that is damaged counts as empty."""
    try:
        stored = StoredLogin(**json.loads(_path().read_text()))
    except (OSError, ValueError, TypeError):
        stored = StoredLogin()
    url = os.environ.get(URL_VARIABLE, stored.url) or platform_url()
    # A token is sent to nobody but the platform that issued it.
    token = os.environ.get(TOKEN_VARIABLE, stored.token if url == stored.url else "")
    return StoredLogin(url, token)


def platform_url() -> str:
    """Return the address of the platform that this package was downloaded from, or ""."""
    return _PLATFORM.read_text() if _PLATFORM.is_file() else ""


def save(login: StoredLogin) -> Path:
    """Store the login in a file that its user alone may read, and return its path."""
    path = _path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(asdict(login), file)
    return path


def remove() -> None:
    """Remove the stored login."""
    _path().unlink(missing_ok=True)


def folder() -> Path:
    """Return where the command line stores what it knows of this user."""
    return Path(typer.get_app_dir("gpuplatform"))


def _path() -> Path:
    return folder() / "login.json"
