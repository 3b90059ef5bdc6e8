"""What a pasted address means: which repository, notebook, archive or record, which branch, which file. Pure."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MAX_ADDRESS_LENGTH: Final = 1000
MAX_REF_LENGTH: Final = 250


class SourceKind(enum.Enum):
    """How what is at an address is fetched."""

    GIT = "git"
    NOTEBOOK = "notebook"
    ARCHIVE = "archive"
    HUGGINGFACE = "huggingface"
    ZENODO = "zenodo"


class AddressError(ValueError):
    """The address cannot be imported; the message says why, for the user."""


@dataclass(frozen=True, slots=True)
class Source:
    """What an address means. `ref` and `path` are as the address has them: a branch's slashes are in `path` then."""

    kind: SourceKind
    url: str
    ref: str = ""
    path: str = ""

    @property
    def host(self) -> str:
        """The host from which it is fetched."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """What a directory for it is called."""
        raise NotImplementedError


def parse(address: str, networks: Sequence[str] = ()) -> Source:
    """Return what an address means; `networks` are those of the operator's own that may be reached.

    Raises AddressError.
    """
    raise NotImplementedError
