"""The mounts of folders that a session's container gets on this host."""

from pathlib import Path

from folders.errors import StorageUnavailableError
from folders.files.mount_source import mount_source
from folders.models import Folder
from folders.storage.paths import ensure_directory
from folders.storage.roots import state_here
from hostworker.runtime_protocol import FolderMount, MountControl, MountError, Runtime
from sessions.launching import mounts
from sessions.models import Mount, Session


def prepare(session: Session, runtime: Runtime) -> tuple[FolderMount, ...]:
    """Return the folders that a session which is about to start mounts, and store why others are not mounted.

    Those that are mounted automatically may be missing. Raises MountError if one that was asked for is.
    """
    settled = mounts.settle(session)
    refused = list(settled.refused)
    found = []
    engine_problem = runtime.folders_problem()
    for row, folder in settled.mounts:
        source = engine_problem or _source(folder, runtime.mount_control)
        if isinstance(source, Path):
            found.append(FolderMount(source=source, target=row.path, is_read_only=row.is_read_only))
            _note(row, "")
        elif row.is_automatic:
            _note(row, source)
        else:
            refused.append(f"{row.folder_name}: {source}")
    if refused:
        raise MountError(f"Not started, as folders that it mounts are missing. {' '.join(refused)}")
    return tuple(found)


def _source(folder: Folder, control: MountControl) -> Path | str:
    """Return the directory to mount, or why it cannot be mounted on this host."""
    root, state = folder.root, state_here(folder.root)
    if state.problem:
        return f"its host does not have the storage {root}. {state.problem}"
    try:
        if folder.measured_at is None:  # it may have been created where its storage was out of reach
            ensure_directory(folder)
        source = mount_source(root.path, folder.holder_number, folder.pk)
        if state.owner.is_container_user:
            return source
        return control.map_root(Path(root.path), str(root.key)) / source.relative_to(root.path)
    except MountError as error:
        return f"its host cannot give sessions the storage {root}. {error}"
    except StorageUnavailableError as error:
        return str(error)
    except (FileNotFoundError, NotADirectoryError):
        return f"its directory is missing in the storage {root}; tell an administrator."
    except OSError as error:
        return f"its directory cannot be opened: {error.strerror}."


def _note(row: Mount, problem: str) -> None:
    """Store why a folder is not mounted, or that it is."""
    problem = problem[:1].upper() + problem[1:300]
    if row.problem != problem:
        Mount.objects.filter(pk=row.pk).update(problem=problem)
