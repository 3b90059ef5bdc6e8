"""Errors of file operations; each message is a sentence for the user."""


class FilesError(Exception):
    """An operation on the files of a folder was refused or failed."""


class InvalidPathError(FilesError):
    """The path or name is not one that a folder can have."""


class EntryNotFoundError(FilesError):
    """Nothing has this path."""


class EntryExistsError(FilesError):
    """Something else has this path already."""


class EntryKindError(FilesError):
    """The entry is of a kind that the operation does not take, such as a symbolic link or a device."""


class ContentChangedError(FilesError):
    """The file is not what the caller has last read."""


class FileTooLargeError(FilesError):
    """The file is too large to be read or saved as text."""


class NotTextError(FilesError):
    """The file is not text in UTF-8."""


class StorageFullError(FilesError):
    """The file system is full, or its quota is used up."""


class StorageAccessError(FilesError):
    """The operating system refused the operation, or the device failed."""


class RootMissingError(FilesError):
    """The storage root is not there: the directory has no marker file, or that of another root."""
