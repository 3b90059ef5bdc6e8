"""Imports and their credentials as the API returns and takes them; sizes are in bytes."""

from datetime import datetime
from decimal import Decimal
from typing import Any

from gpuplatform_client.models.api_model import ApiModel


class ImportSpec(ApiModel):
    """A request to fetch what is at an address; without a folder and a session it is a look. None: left out."""

    address: str
    ref: str | None = None
    path: str | None = None
    credential: int | None = None  # id
    folder: str | None = None  # id, or the name of one of the user's own
    folder_name: str | None = None  # of a new one
    session: str | None = None  # id
    directory: str | None = None
    whole_history: bool | None = None
    resource_group: str | None = None
    project: str | None = None


class ImportProposal(ApiModel):
    """What a finished import proposes for a session."""

    image: str | None = None  # reference
    cpu: int | None = None
    memory: int | None = None
    fgpu: Decimal | None = None
    app: str = ""
    tree: str = ""
    file: str = ""
    reasons: dict[str, str] = {}


class ImportInfo(ApiModel):
    """An import: how far it is, and what was found."""

    id: str
    url: str
    ref: str = ""
    path: str = ""
    target: str
    folder: str | None = None
    directory: str = ""
    session: str | None = None
    tree: str = ""
    state: str
    progress: str = ""
    fetched_bytes: int = 0
    found: dict[str, Any] = {}
    problem: str = ""
    created_at: datetime
    ended_at: datetime | None = None

    @property
    def is_over(self) -> bool:
        """True once nothing more is fetched."""
        return self.ended_at is not None


class LaunchedSession(ApiModel):
    """A session that was launched with an import."""

    id: str
    name: str
    status: str


class CredentialInfo(ApiModel):
    """A token or SSH key for one host of repositories, without its secret."""

    id: int
    name: str
    host: str
    kind: str
    username: str = ""
    public_key: str = ""
    created_at: datetime
    last_used_at: datetime | None = None
