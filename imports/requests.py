"""What pages, API and commands ask for: an import, and what a finished one proposes for a session."""

from collections.abc import Sequence
from dataclasses import dataclass

from accounts.models import Project
from folders.models import Folder
from imports.models import ImportCredential
from resources.models import Image, ResourceGroup
from sessions.launching.mounts import MountRequest
from sessions.models import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """A request to fetch what is at an address.

    Without `session`, `folder` and `folder_name` it is a look: what is there is told, and nothing kept.
    """

    address: str  # as it was pasted
    ref: str = ""  # branch, tag or commit; empty: what the address says, else the default branch
    path: str = ""  # file to open; empty: what the address says
    credential: ImportCredential | None = None
    folder: Folder | None = None  # into which it goes
    folder_name: str = ""  # of a new folder of the owner's, into which it goes
    session: Session | None = None  # a running one of the owner's, into whose home folder it goes
    directory: str = ""  # name of the tree there; empty: that of the repository
    whole_history: bool = False
    installs: bool = True  # packages that it names, where it goes into a session
    project: Project | None = None  # whose limits and groups count for the session that fetches
    resource_group: ResourceGroup | None = None  # in which that runs; None: the first that the owner may use


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """What a finished import, or a look, proposes for a session; None and "" where it proposes nothing.

    Memory is in bytes and fGPU in milli-fGPU. `reasons` says why, {field: a sentence}.
    """

    image: Image | None = None
    cpu: int | None = None
    memory: int | None = None
    fgpu: int | None = None
    mounts: Sequence[MountRequest] = ()
    app: str = ""  # jupyterlab, vscode
    tree: str = ""  # where it is in the session
    file: str = ""  # to open, below `tree`
    reasons: dict[str, str]
