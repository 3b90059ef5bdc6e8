"""Operations on imports for pages, API and commands: begin, look, cancel, propose, launch."""

from accounts.models import User
from imports.models import Import
from imports.requests import ImportRequest, LaunchOptions
from sessions.launching.requests import LaunchRequest
from sessions.models import Session


def look(owner: User, request: ImportRequest) -> Import:
    """Begin to look at what is at an address; its `found` says it once it is done. Raises RejectedError.

    The same look of the last minutes is returned again.
    """
    raise NotImplementedError


def begin(owner: User, request: ImportRequest) -> Import:
    """Begin to fetch what is at an address into a folder or a session. Raises RejectedError at fields of the request."""
    raise NotImplementedError


def cancel(import_: Import, *, actor: User) -> None:
    """End an import and its session; what was fetched by then is removed. Without effect once it has ended."""
    raise NotImplementedError


def launch_options(import_: Import) -> LaunchOptions:
    """Return what a finished import, or a look, proposes for a session of its owner."""
    raise NotImplementedError


def launch(owner: User, import_: Import, request: LaunchRequest, *, installs: bool = True) -> list[Session]:
    """Launch sessions with the tree of a finished import, and have the packages that it names installed there.

    Of a look the source is fetched into the home folder of each session. Raises RejectedError.
    """
    raise NotImplementedError
