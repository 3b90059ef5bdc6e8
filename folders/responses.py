"""HTTP statuses of the errors of folders and files, for API and pages."""

from typing import Final

from rest_framework import status
from rest_framework.exceptions import APIException, ValidationError

from folders.errors import (
    FolderAccessError,
    FolderError,
    FolderInUseError,
    FolderRejectedError,
    FolderStateError,
    StorageQuotaError,
    StorageUnavailableError,
)
from folders.files.downloads.archive import TooManyEntriesError
from folders.files.errors import (
    ContentChangedError,
    EntryExistsError,
    EntryKindError,
    EntryNotFoundError,
    FilesError,
    FileTooLargeError,
    InvalidPathError,
    NotTextError,
    RootMissingError,
    StorageAccessError,
    StorageFullError,
)
from folders.files.partial import PartialFileBusyError

STATUSES: Final[dict[type[Exception], int]] = {
    FolderRejectedError: status.HTTP_400_BAD_REQUEST,
    FolderAccessError: status.HTTP_403_FORBIDDEN,
    FolderStateError: status.HTTP_409_CONFLICT,
    FolderInUseError: status.HTTP_409_CONFLICT,
    StorageQuotaError: status.HTTP_413_REQUEST_ENTITY_TOO_LARGE,
    StorageUnavailableError: status.HTTP_503_SERVICE_UNAVAILABLE,
    InvalidPathError: status.HTTP_400_BAD_REQUEST,
    EntryNotFoundError: status.HTTP_404_NOT_FOUND,
    EntryExistsError: status.HTTP_409_CONFLICT,
    EntryKindError: status.HTTP_409_CONFLICT,
    ContentChangedError: status.HTTP_412_PRECONDITION_FAILED,
    FileTooLargeError: status.HTTP_413_REQUEST_ENTITY_TOO_LARGE,
    NotTextError: status.HTTP_415_UNSUPPORTED_MEDIA_TYPE,
    PartialFileBusyError: status.HTTP_423_LOCKED,
    TooManyEntriesError: status.HTTP_413_REQUEST_ENTITY_TOO_LARGE,
    StorageFullError: status.HTTP_507_INSUFFICIENT_STORAGE,
    StorageAccessError: status.HTTP_503_SERVICE_UNAVAILABLE,
    RootMissingError: status.HTTP_503_SERVICE_UNAVAILABLE,
}


def status_of(error: FolderError | FilesError) -> int:
    """Return the HTTP status of the error; 409 for one without a row of its own."""
    return STATUSES.get(type(error), status.HTTP_409_CONFLICT)


def api_exception(error: FolderError | FilesError) -> APIException:
    """Return the error as REST framework's, with messages per field where it concerns fields."""
    if isinstance(error, FolderRejectedError):
        return ValidationError({field: [message] for field, message in error.errors.items()})
    if isinstance(error, InvalidPathError):
        return ValidationError({"path": [str(error)]})
    answer = APIException(str(error), code="folder")
    answer.status_code = status_of(error)
    return answer
