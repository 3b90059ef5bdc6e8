"""Errors of operations on folders; each message is a sentence for the user."""

from collections.abc import Mapping


class FolderError(Exception):
    """An operation on a folder was refused."""


class FolderRejectedError(FolderError):
    """The request is not valid; `errors` is {field: message for the user}."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__("; ".join(errors.values()))
        self.errors = dict(errors)


class FolderStateError(FolderError):
    """The folder is in the trash, or is not in the trash, when it should be the other way round."""


class FolderInUseError(FolderError):
    """Sessions that have not ended mount the folder."""


class FolderAccessError(FolderError):
    """The user may not do this with the folder."""


class StorageQuotaError(FolderError):
    """The owner's policy allows no more storage."""


class StorageUnavailableError(FolderError):
    """The folder's storage root cannot be reached from this process; the message says where it can be used."""
