"""What a folder proposes: its definition file, and the models that MLflow stored in it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from accounts.models import User
from deployments.definitions import mlflow_directory, model_file
from deployments.definitions.drafts import DefinitionError, Draft, Mistake
from folders.contents import services as contents
from folders.files.errors import EntryNotFoundError, FileTooLargeError, NotTextError
from folders.files.folder_files import FolderFiles
from folders.models import Folder
from folders.sharing.access import Access


@dataclass(frozen=True, slots=True)
class FolderDrafts:
    """Drafts of what is in a folder."""

    drafts: Sequence[Draft]
    is_complete: bool  # False: there is more than is ever looked at


def drafts_of(user: User, folder: Folder, path: str = "") -> FolderDrafts:
    """Return what a directory of the folder proposes; its definition file, first, is at its top.

    Raises DefinitionError for a wrong file, FolderError without the right to read, FilesError for a wrong path.
    """
    with contents.opened(user, folder, Access.READ) as files:
        defined = [] if path else _defined(files)
        stored, is_complete = mlflow_directory.drafts_in(files, path)
    return FolderDrafts([*defined, *stored], is_complete)


def proposes(names: Iterable[str], path: str) -> bool:
    """Return whether a directory with entries of these names may propose something."""
    wanted = {mlflow_directory.MODEL_FILE, *mlflow_directory.TREES, *(() if path else model_file.FILE_NAMES)}
    return not wanted.isdisjoint(names)


def _defined(files: FolderFiles) -> list[Draft]:
    for source in model_file.FILE_NAMES:
        try:
            text = files.read_text(source).text
        except EntryNotFoundError:
            continue
        except (FileTooLargeError, NotTextError) as error:
            raise DefinitionError(source, [Mistake(1, "", str(error))]) from None
        return model_file.drafts_of(text, source)
    return []
