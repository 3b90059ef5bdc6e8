"""Measures what folders take, and clears away what has expired in them, on the hosts that have their roots.

A folder is claimed by one host at a time. It is measured soon after the platform wrote to it, about once a minute while
a session can write to it, and a few times a day otherwise; never for more than a twentieth of the time. Where many
files are made on the root in a hurry, those that sessions can write to are measured at once, for half of the time. A
folder with far more files than its holder may have is not walked to its end.
"""

import ctypes
import logging
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Final, Protocol

from django.conf import settings
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.db.models.functions import Now

from folders.errors import FolderError
from folders.files.errors import FilesError, StorageAccessError
from folders.files.folder_files import FolderFiles
from folders.files.walk import Usage, in_rounds
from folders.models import Folder, StorageRoot
from folders.quotas import rules as quota
from folders.storage import paths as storage
from resources import clock
from resources.models import Host

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 2.0
WRITABLE_INTERVAL: Final = timedelta(minutes=1)  # while a session may write to the folder
IDLE_INTERVAL: Final = timedelta(hours=6)
PAUSE_FACTOR: Final = 19  # times the duration of the last measurement; 1 where files are made in a hurry
MAX_PAUSE: Final = timedelta(days=30)  # the longest that a host may write (hostaccess/grants.py)
WALK_FACTOR: Final = 2  # times the files that the holder may have, after which a walk ends
CLAIM: Final = timedelta(minutes=30)  # after which a host that measures is taken for dead
DRAFT_LIFETIME: Final = timedelta(days=1)  # of a file among the uploads that no upload is about
AT_ONCE: Final = 50  # folders that are measured one after another before the root is looked at again

_IOPRIO_SET: Final = {"x86_64": 251, "aarch64": 30}
_IDLE_CLASS: Final = 3 << 13


class AsRoot(Protocol):
    """What root does on a storage root with what root of a session has left, or its user has shut. Raises OSError."""

    def purge(self, holder: int, folder: str) -> bool:
        """Remove some of what was expunged from the trash of a folder; return whether nothing is left."""

    def usage(self, holder: int, folder: str, most: int | None) -> Usage:
        """Return what a folder takes, as `FolderFiles.usage` does."""


class StoppedError(Exception):
    """The host worker ends, so that a measurement is given up."""


def measure_due(
    root: StorageRoot,
    stopped: threading.Event,
    *,
    is_urgent: bool = False,
    as_root: AsRoot | None = None,
) -> int:
    """Measure the folders on a root of this machine that are due; return how many were measured.

    With `is_urgent` all that sessions can write to are due, each half of the time at most. Gives up when `stopped` is
    set. `as_root` does what this process' user may not. Call it in a thread of its own: it takes as long as `du`, and
    for ever where a file system hangs.
    """
    count = 0
    for folder in _due(root, clock.now(), is_urgent=is_urgent):
        if stopped.is_set():
            break
        if _claim(folder):
            count += _measure(folder, stopped, as_root)
    return count


def lower_priority() -> None:
    """Have this thread wait for others with its reads and its computing."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
    if number := _IOPRIO_SET.get(platform.machine()):
        ctypes.CDLL(None).syscall(ctypes.c_long(number), 1, 0, _IDLE_CLASS)


def due_on(host: Host) -> QuerySet[Folder]:
    """Return the folders to measure on the roots that this host has."""
    return _unmeasured(Now()).filter(root__on_hosts__host=host, root__on_hosts__is_present=True)


def _due(root: StorageRoot, now: datetime, *, is_urgent: bool) -> list[Folder]:
    """Return the folders to measure, those that have waited longest first; one query."""
    found = _unmeasured(now, is_urgent=is_urgent).filter(root=root)
    related = found.select_related("root", "owner__policy", "project__policy").defer("owner__password")
    return list(related.order_by("measure_due_at")[:AT_ONCE])


def _unmeasured(now: datetime | Now, *, is_urgent: bool = False) -> QuerySet[Folder]:
    """Return the folders to measure that no host is measuring."""
    writing = Folder.objects.filter(
        pk=OuterRef("pk"), mounts__problem="", mounts__is_read_only=False, mounts__session__ended_at=None
    )
    rested = Q(measured_at=None) | Q(measured_at__lte=now - F("measure_pause"))
    is_due = rested & (Q(measure_due_at__lte=now) | Q(Exists(writing), measured_at__lte=now - WRITABLE_INTERVAL))
    if is_urgent:
        is_due |= Q(Exists(writing), measured_at__lte=now - F("measure_pause") / PAUSE_FACTOR)
    free = Q(measuring_since=None) | Q(measuring_since__lt=now - CLAIM)
    return Folder.objects.filter(is_due, free, deleting_at=None)


def _claim(folder: Folder) -> bool:
    """Take the folder for this host unless another was quicker, and have it due no more until something changes."""
    now = clock.now()
    claimed = Folder.objects.filter(pk=folder.pk, measuring_since=folder.measuring_since)
    folder.measuring_since, folder.measure_due_at = now, now + IDLE_INTERVAL
    return bool(claimed.update(measuring_since=now, measure_due_at=folder.measure_due_at))


def _measure(folder: Folder, stopped: threading.Event, as_root: AsRoot | None) -> bool:
    """Measure a claimed folder, and release it; return whether that succeeded."""
    begun = time.monotonic()
    max_files = quota.limits_of(folder.holder)[1]
    most = None if max_files is None else WALK_FACTOR * max_files + 1
    try:
        with storage.files_of(folder) as files:
            _clear_away(folder, files, stopped, as_root)
            usage = files.usage(_checkpoint(stopped), most)
        if usage.is_partial and as_root is not None:
            with _unless_refused(folder):
                usage = as_root.usage(folder.holder_number, folder.pk, most)
    except StoppedError:
        _release(folder, clock.now())
        return False
    except (FolderError, FilesError, OSError) as error:
        logger.warning("folder %s: could not be measured: %s", folder.pk, error)
        _release(folder, clock.now() + WRITABLE_INTERVAL)
        return False
    _record(folder, usage, timedelta(seconds=time.monotonic() - begun))
    return True


def _checkpoint(stopped: threading.Event) -> Callable[[], None]:
    def check() -> None:
        if stopped.is_set():
            raise StoppedError

    return check


@contextmanager
def _unless_refused(folder: Folder) -> Iterator[None]:
    """Go on without a block that asks root for something, where there is none, or it fails."""
    try:
        yield
    except OSError as error:
        logger.warning("folder %s: root of the host cannot help: %s", folder.pk, error)


def _record(folder: Folder, usage: Usage, took: timedelta) -> None:
    """Store the usage, unless the claim was lost; what was written meanwhile has made the folder due again."""
    Folder.objects.filter(pk=folder.pk, measuring_since=folder.measuring_since).update(
        used_bytes=usage.bytes,
        used_files=usage.files,
        measured_at=clock.now(),
        measure_pause=min(took * PAUSE_FACTOR, MAX_PAUSE),
        measuring_since=None,
    )


def _release(folder: Folder, due_at: datetime) -> None:
    Folder.objects.filter(pk=folder.pk, measuring_since=folder.measuring_since).update(
        measuring_since=None, measure_due_at=due_at
    )


def _clear_away(folder: Folder, files: FolderFiles, stopped: threading.Event, as_root: AsRoot | None) -> None:
    """Remove what lies in the folder's trash for too long, and drafts of processes that have died. Safe to repeat."""
    now = clock.now()
    if settings.COMPUTE_TRASH_DAYS:
        files.trash.empty(now - timedelta(days=settings.COMPUTE_TRASH_DAYS))
    try:
        in_rounds(files.trash.purge, _checkpoint(stopped))
    except StorageAccessError:
        if as_root is None:
            raise
        with _unless_refused(folder):
            in_rounds(lambda: as_root.purge(folder.holder_number, folder.pk), _checkpoint(stopped))
    uploads = {str(pk) for pk in folder.uploads.values_list("pk", flat=True)}
    for name in files.staging.names():
        if name not in uploads and files.staging.modified_at(name) < now - DRAFT_LIFETIME:
            files.staging.remove(name)
