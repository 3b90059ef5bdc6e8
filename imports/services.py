"""Operations on imports for pages, API and commands: look, begin, cancel, propose, launch. One transaction each."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Final

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from accounts import audit
from accounts.models import User
from folders.errors import FolderRejectedError
from folders.models import Folder
from folders.mount_paths import absolute_path
from folders.names import HOME
from folders.sharing import folders
from folders.sharing.access import Access, access
from imports import addresses, proposals
from imports.addresses import AddressError, Source
from imports.fetcher import environments
from imports.models import Import, ImportState, ImportTarget
from imports.requests import ImportRequest, LaunchOptions
from imports.runs import fetch_sessions
from resources import clock
from sessions.errors import GENERAL, RejectedError
from sessions.launching import services as sessions
from sessions.launching.mounts import MountRequest
from sessions.launching.requests import LaunchRequest
from sessions.lifecycle import Status
from sessions.models import Session

MAX_LIVE: Final = 10  # imports of one user that wait or fetch
LOOK_LIFETIME: Final = timedelta(minutes=10)  # in which the same look is not taken again


def look(owner: User, request: ImportRequest) -> Import:
    """Begin to look at what is at an address; its `found` says it once it is done. Raises RejectedError.

    The same look of the last minutes is returned again.
    """
    made = _new(owner, request, ImportTarget.LOOK)
    same = Import.objects.filter(
        owner=owner,
        target=ImportTarget.LOOK,
        url=made.url,
        ref=made.ref,
        path=made.path,
        credential=made.credential,
        created_at__gte=clock.now() - LOOK_LIFETIME,
        state__in=(ImportState.WAITING, ImportState.FETCHING, ImportState.DONE),
    )
    if found := same.first():
        return found
    with transaction.atomic():
        _check_number(owner)
        return _submitted(made, request, ())


def begin(owner: User, request: ImportRequest) -> Import:
    """Begin to fetch what is at an address into a folder or a session. Raises RejectedError at fields of `request`."""
    if request.session is not None:
        return _begin_in_session(owner, request, request.session)
    made = _new(owner, request, ImportTarget.FOLDER)
    with transaction.atomic():
        _check_number(owner)
        made.folder = _folder(owner, request)
        made.mount_path = absolute_path("", made.folder.name)
        _check_free(made)
        return _submitted(made, request, [MountRequest(folder=made.folder)])


@audit.recorded_for_others("cancel import")
def cancel(import_: Import, *, actor: User) -> None:
    """End an import and its session; what was fetched by then is removed. Without effect once it has ended."""
    with transaction.atomic():
        ended = Import.objects.filter(pk=import_.pk).live()
        if not ended.update(state=ImportState.CANCELLED, ended_at=clock.now(), progress=""):
            return
        if import_.session is not None and import_.target != ImportTarget.SESSION:
            sessions.terminate(import_.session, actor=actor)
    import_.refresh_from_db()


def launch_options(import_: Import) -> LaunchOptions:
    """Return what a finished import, or a look, proposes for a session of its owner."""
    return proposals.propose(import_)


def launch(owner: User, import_: Import, request: LaunchRequest, *, installs: bool = True) -> list[Session]:
    """Launch sessions with the tree of a finished import, and have the packages that it names installed there.

    Of a look the source is fetched into the home folder of each session. Raises RejectedError.
    """
    if import_.owner_id != owner.pk or import_.state != ImportState.DONE:
        raise RejectedError({GENERAL: "Launch with an import of your own that is done."})
    if request.cluster is not None:
        raise RejectedError({"cluster": "What is imported goes into a session of one container."})
    if request.command and import_.target != ImportTarget.FOLDER:
        raise RejectedError({"command": "It would begin before the files are there: import them into a folder first."})
    mount_path = HOME
    if import_.target == ImportTarget.FOLDER:
        mounted = next((each for each in request.mounts if each.folder.pk == import_.folder_id), None)
        if mounted is None:
            raise RejectedError({"mounts": "Mount the folder into which it was imported."})
        mount_path = mounted.absolute_path
        installs = installs and not mounted.is_read_only and access(owner, mounted.folder) == Access.WRITE
        if request.command and installs:
            raise RejectedError({"command": "It would begin before the packages are there: launch it without them."})
    with transaction.atomic():
        if installs:
            _make_environments_folder(owner)
        made = sessions.submit(owner, request)
        Import.objects.bulk_create(_into(import_, session, mount_path, installs=installs) for session in made)
    return made


def _make_environments_folder(owner: User) -> None:
    """Make the folder in which packages stay for later sessions; without effect where the owner may have no more."""
    if Folder.objects.live().filter(owner=owner, name=environments.FOLDER).exists():
        return
    with suppress(FolderRejectedError):
        folder = folders.create_row(owner, environments.FOLDER)
        transaction.on_commit(partial(folders.make_directory, folder))


def _into(import_: Import, session: Session, mount_path: str, *, installs: bool) -> Import:
    """Return the row by which a session that is launched gets the tree of an import."""
    is_there = import_.target == ImportTarget.FOLDER
    has_work = installs or not is_there  # for the program; without it the row only says what apps are to open
    copied = ("owner_id", "address", "kind", "url", "ref", "path", "credential_id", "folder_id", "directory", "found")
    return Import(
        **{name: getattr(import_, name) for name in copied},
        target=ImportTarget.SESSION,
        session=session,
        mount_path=mount_path,
        origin=import_ if is_there else None,
        installs=installs,
        state=ImportState.WAITING.value if has_work else ImportState.DONE.value,
        created_at=clock.now(),
        ended_at=None if has_work else clock.now(),
    )


def _begin_in_session(owner: User, request: ImportRequest, session: Session) -> Import:
    if session.owner_id != owner.pk or session.status != Status.RUNNING or session.cluster_id is not None:
        raise RejectedError({"session": "Choose a running session of your own, of one container."})
    if request.folder is not None or request.folder_name:
        raise RejectedError({"folder": "Choose a folder or a session, not both."})
    made = _new(owner, request, ImportTarget.SESSION)
    made.session, made.mount_path, made.installs = session, HOME, request.installs
    with transaction.atomic():
        _check_number(owner)
        made.save()
    return made


def _new(owner: User, request: ImportRequest, target: ImportTarget) -> Import:
    """Return the unsaved import of a request. Raises RejectedError at its fields."""
    source = _source(request)
    errors = {}
    if request.directory and (error := folder_part_error(request.directory)):
        errors["directory"] = error
    if error := _credential_error(owner, request, source):
        errors["credential"] = error
    if errors:
        raise RejectedError(errors)
    return Import(
        owner=owner,
        address=request.address.strip(),
        kind=source.kind.value,
        url=source.url,
        ref=source.ref,
        path=source.path,
        credential=request.credential,
        target=target.value,
        directory=request.directory or source.name,
        whole_history=request.whole_history,
        created_at=clock.now(),
    )


def _source(request: ImportRequest) -> Source:
    """Return what is asked for. Raises RejectedError at `address`, `ref` or `path`."""
    try:
        source = addresses.parse(request.address, settings.COMPUTE_IMPORT_NETWORKS)
    except AddressError as error:
        raise RejectedError({"address": str(error)}) from error
    checked = {"ref": addresses.ref_error, "path": addresses.path_error}
    given = {"ref": request.ref.strip(), "path": request.path.strip()}
    errors = {name: checked[name](value) for name, value in given.items() if value}
    if any(errors.values()):
        raise RejectedError({name: error for name, error in errors.items() if error})
    return addresses.with_choice(source, **given)


def folder_part_error(name: str) -> str:
    """Return why a directory in a folder or home cannot have this name, "" if it can."""
    if len(name) > addresses.MAX_NAME_LENGTH or addresses.path_error(name) or "/" in name or name.startswith("."):
        return (
            f"Write a name of at most {addresses.MAX_NAME_LENGTH} characters, without / and not beginning with a dot."
        )
    return ""


def _credential_error(owner: User, request: ImportRequest, source: Source) -> str:
    credential = request.credential
    if credential is None:
        return ""
    if credential.owner_id != owner.pk:
        return "Choose a credential of your own."
    if credential.host != source.host:
        return f"This credential is for {credential.host}, and is not sent to {source.host}."
    if credential.is_key != source.is_ssh:
        return "This address is opened by an SSH key." if source.is_ssh else "This address is opened by a token."
    return ""


def _check_number(owner: User) -> None:
    """Raise RejectedError where the user has too many imports under way; call it in the transaction that adds one."""
    User.objects.select_for_update(no_key=True).get(pk=owner.pk)
    with_session = Q(
        target=ImportTarget.SESSION, begun_attempt=0
    )  # begins once its session does, which may wait for days
    if Import.objects.filter(owner=owner).live().exclude(with_session).count() >= MAX_LIVE:
        raise RejectedError({GENERAL: f"You have {MAX_LIVE} imports under way; wait for one, or cancel it."})


def _folder(owner: User, request: ImportRequest) -> Folder:
    """Return the folder into which it goes, made where a new one is asked for. Raises RejectedError."""
    if request.folder is not None and request.folder_name:
        raise RejectedError({"folder_name": "Choose a folder or name a new one, not both."})
    if request.folder is not None:
        if access(owner, request.folder) != Access.WRITE:
            raise RejectedError({"folder": "Choose a folder in which you may write."})
        return request.folder
    if not request.folder_name:
        raise RejectedError({"folder": "Choose a folder, name a new one, or choose a session."})
    try:
        folder = folders.create_row(owner, request.folder_name)
    except FolderRejectedError as error:
        raise RejectedError({"folder_name": " ".join(error.errors.values())}) from error
    transaction.on_commit(partial(folders.make_directory, folder))  # nothing stays of an import that is refused
    return folder


def _check_free(made: Import) -> None:
    """Raise RejectedError where another import goes to the same place now."""
    if Import.objects.filter(folder=made.folder, directory=made.directory).live().exists():
        raise RejectedError({"directory": "Another import goes there now; choose another name."})


def _submitted(made: Import, request: ImportRequest, mounts: Sequence[MountRequest]) -> Import:
    """Store the import with the session that fetches it. Raises RejectedError."""
    asked = fetch_sessions.request_for(made, mounts, request.project, request.resource_group)
    [made.session] = sessions.submit(made.owner, asked)
    made.save()
    return made
