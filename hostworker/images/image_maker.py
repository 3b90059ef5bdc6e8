"""Saves a container as an image, reports what one would hold, and removes images that nobody has.

Safe to run twice and to die anywhere. An advisory lock is held while a conversion is worked on; one that was begun and
whose lock is free was left by a dead worker: what it left is removed, and it has failed.
"""

import logging
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from django.conf import settings
from django.db import connection
from django.db.models import Exists, OuterRef
from django.utils import timezone

from engine.containers import INSTALLATION_LABEL
from hostworker.conversion import archive, changes, layer, report
from hostworker.conversion.base import CONVERSION_LABEL, REFERENCE_LABEL, BaseImage, ImageEngine, SnapshotError
from hostworker.conversion.layer import Layer
from hostworker.conversion.report import RenderedReport, Survey
from hostworker.runtime_protocol import EngineUnreachableError, Runtime
from resources.amounts.units import GIB, size_text
from resources.models import Host, HostImage, Image, Installation
from resources.registries import credentials
from resources.registries.client import DeletionUnsupportedError, RegistryError
from resources.registries.client import delete as delete_from_registry
from resources.registries.credentials import CredentialsError
from sessions.conversion import change_reports
from sessions.conversion import services as conversions
from sessions.conversion.services import StaleConversionError
from sessions.models import ACTIVE_CONVERSIONS, ChangeReport, Conversion, ConversionState

logger = logging.getLogger(__name__)

CONVERSION_LOCK: Final = 0x434F4E56  # "CONV": the class of the advisory locks of conversions under way
MAX_LAYERS: Final = 120  # of an image; overlayfs mounts at most some more
SPARE_BYTES: Final = GIB  # of this machine's disk are left free
CHECKED_BYTES: Final = 64 * 2**20  # are written between two looks at the free space
REPORT_SECONDS: Final = 45.0  # of reading for a report; what is not seen by then is left out
REPORT_FAILED: Final = "The report could not be made; the log of the session's host says why."
NO_ENGINE: Final = "This host's runtime makes no images."


@dataclass(slots=True)
class _Sink:
    """A file that is deleted when it is closed, or its process dies; refuses to fill the disk."""

    file: IO[bytes]
    folder: Path
    may_go_on: Callable[[], None]
    _unchecked_bytes: int = CHECKED_BYTES

    def write(self, data: bytes) -> int:
        self._unchecked_bytes += len(data)
        if self._unchecked_bytes >= CHECKED_BYTES:
            self._unchecked_bytes = 0
            self.may_go_on()
            if shutil.disk_usage(self.folder).free < SPARE_BYTES:
                raise SnapshotError("The disk of the session's host is too full to save it.")
        return self.file.write(data)


def convert(runtime: Runtime, conversion_id: str, stopping: threading.Event) -> None:
    """Bring the conversion from QUEUED to DONE or FAILED.

    Raises EngineUnreachableError; the conversion is then cleared up by `Converter.resume`.
    """
    with _lock(conversion_id) as is_ours:
        conversion = conversions.begin(conversion_id) if is_ours else None
        if conversion is None:
            return
        try:
            _convert(_engine(runtime), conversion, stopping)
        except EngineUnreachableError:
            raise
        except (SnapshotError, CredentialsError, StaleConversionError, OSError) as failure:
            logger.warning("session %s: not saved as an image: %s", conversion.session_id, failure)
            _clear(runtime, conversion, str(failure))


def clear_if_dead(runtime: Runtime, conversion: Conversion) -> None:
    """Clear up after the conversion's worker unless one works on it: nothing of it stays, and it has failed.

    Where the engine does not remove the image, the conversion stays as it is for the next call.
    """
    with _lock(str(conversion.pk)) as is_dead:
        if is_dead and Conversion.objects.filter(pk=conversion.pk, state__in=ACTIVE_CONVERSIONS).exists():
            try:
                _clear(runtime, conversion, "The host worker ended before the image was complete. Start it again.")
            except SnapshotError as error:  # others that wait for this host must not wait for it
                logger.warning("session %s: its image is not cleared away yet: %s", conversion.session_id, error)


def remove_deleted(runtime: Runtime, host: Host) -> None:
    """Remove deleted images from the engine and, where this host has pushed them, from their registries."""
    untag_deleted(runtime, host)
    makers = Conversion.objects.filter(image=OuterRef("pk"), host=host)
    pushed = Image.objects.filter(Exists(makers), removed_at__isnull=False).exclude(registry_digest="")
    for image in pushed:
        if _is_unpushed(image.reference, image.registry_digest):
            gone = Image.objects.filter(pk=image.pk, registry_digest=image.registry_digest)
            gone.filter(removed_at__isnull=False).update(registry_digest="")


def untag_deleted(runtime: Runtime, host: Host) -> None:
    """Remove from the engine the images that were deleted, or never finished, and forget that the host has them."""
    if engine := runtime.image_engine:
        made = set(engine.made_here())
        in_use = set(Image.objects.filter(reference__in=made, removed_at=None).values_list("reference", flat=True))
        active = Conversion.objects.filter(reference__in=made, state__in=ACTIVE_CONVERSIONS)
        in_use |= set(active.values_list("reference", flat=True))
        left = {reference for reference in made - in_use if not _is_untagged(engine, reference)}
        held = HostImage.objects.filter(host=host, image__removed_at__isnull=False)
        held.exclude(image__reference__in=left).delete()


def _is_untagged(engine: ImageEngine, reference: str) -> bool:
    try:
        engine.untag(reference)
    except SnapshotError as error:  # an ended session's container may still be there
        logger.info("image %s: not removed yet: %s", reference, error)
        return False
    logger.info("image %s: removed", reference)
    return True


def _is_unpushed(reference: str, digest: str = "") -> bool:
    """Return whether the registry no longer has the image, or deletes none at all."""
    try:
        delete_from_registry(reference, digest)
    except DeletionUnsupportedError as error:
        logger.warning("image %s: stays in its registry: %s", reference, error)
    except (RegistryError, CredentialsError) as error:
        logger.warning("image %s: not removed from its registry yet: %s", reference, error)
        return False
    return True


def report_changes(runtime: Runtime, session_id: str, stopping: threading.Event) -> None:
    """Make the report that is asked for, while the session goes on; store why where that fails."""
    asked = change_reports.waiting(session_id)
    if asked is None:
        return
    deadline = timezone.now().timestamp() + REPORT_SECONDS

    def may_go_on() -> None:
        if stopping.is_set() or timezone.now().timestamp() > deadline:
            raise TimeoutError

    try:
        rendered = _survey(_engine(runtime), asked, may_go_on)
        change_reports.store(asked, content=rendered.report, recipe=rendered.recipe)
    except SnapshotError as failure:
        change_reports.store(asked, content={}, recipe="", problem=str(failure))
    except EngineUnreachableError:
        raise
    except Exception:  # else it is tried again every few seconds, with the same end
        change_reports.store(asked, content={}, recipe="", problem=REPORT_FAILED)
        raise


def _survey(engine: ImageEngine, asked: ChangeReport, may_go_on: Callable[[], None]) -> RenderedReport:
    container = engine.running(asked.session_id, asked.attempt)
    changed = engine.changes(container.id)
    plan = changes.plan(changed, container.mounts, lambda path: engine.exists(container.id, path))
    survey, is_partial = Survey(), False
    try:
        layer.read_only(layer.entries(engine, container.id, plan, survey), may_go_on)
    except TimeoutError:
        is_partial = True
    engine.running(asked.session_id, asked.attempt)  # else files were missed
    image = asked.session.image.reference
    user = str(engine.base(container.image_id).config.get("User") or "")
    return report.render(survey, changed, plan, base=image, base_user=user, is_partial=is_partial)


def _convert(engine: ImageEngine, conversion: Conversion, stopping: threading.Event) -> None:
    def may_go_on() -> None:
        if stopping.is_set():
            raise SnapshotError("The host worker was stopped before the image was complete. Start it again.")

    folder = Path(settings.COMPUTE_VAR_DIR) / "conversions"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        base, saved, rendered = _save(engine, conversion, _Sink(file, folder, may_go_on), may_go_on)
        file.seek(0)
        conversions.show_progress(conversion, f"Adding {size_text(saved.size_bytes)} to the host's images")
        engine.load(archive.image_archive(base, saved, file, _new_image(conversion)))
    digest = _push(engine, conversion, may_go_on)
    host = conversion.host or Host.objects.get(name=settings.COMPUTE_HOST_NAME)
    size = engine.size(conversion.reference)
    conversions.finish(conversion, host, size_bytes=size, registry_digest=digest, recipe=rendered.recipe)
    logger.info("session %s: saved as %s", conversion.session_id, conversion.reference)


def _save(
    engine: ImageEngine, conversion: Conversion, sink: Any, may_go_on: Callable[[], None]
) -> tuple[BaseImage, Layer, RenderedReport]:
    """Write what changed to the sink while the session goes on.

    It is not paused: an exec that begins at that moment (a terminal, an app) would keep containerd's shim from ever
    resuming it, and the engine from removing images.
    """
    session = conversion.session
    container = engine.running(session.pk, conversion.attempt)
    base = engine.base(container.image_id)
    if len(base.layers) >= MAX_LAYERS:
        raise SnapshotError(f"The session's image has {len(base.layers)} layers, and no more fit. Build it anew.")
    survey = Survey()
    changed = engine.changes(container.id)
    plan = changes.plan(changed, container.mounts, lambda path: engine.exists(container.id, path))
    saved = layer.write_layer(engine, container.id, plan, sink, survey, may_go_on)
    engine.running(session.pk, conversion.attempt)  # else files were missed
    user = str(base.config.get("User") or "")
    return base, saved, report.render(survey, changed, plan, base=session.image.reference, base_user=user)


def _push(engine: ImageEngine, conversion: Conversion, may_go_on: Callable[[], None]) -> str:
    """Push the image to the registry that it is named after; return its digest there, "" where it is in none."""
    registry = credentials.push_target()
    if registry is None or not conversion.reference.startswith(f"{registry.address}/"):
        return ""
    conversions.show_progress(conversion, "Pushing to the registry", ConversionState.PUSHING)

    def on_progress(text: str) -> None:
        may_go_on()
        conversions.show_progress(conversion, text)

    login = credentials.login_of(registry)
    return engine.push(conversion.reference, login.auth_config() if login else {}, on_progress)


def _new_image(conversion: Conversion) -> archive.NewImage:
    now = timezone.now().isoformat(timespec="seconds").replace("+00:00", "Z")
    labels = {
        INSTALLATION_LABEL: Installation.current_key(),
        CONVERSION_LABEL: str(conversion.pk),
        REFERENCE_LABEL: conversion.reference,
        "org.opencontainers.image.title": conversion.name,
        "org.opencontainers.image.version": conversion.tag,
        "org.opencontainers.image.created": now,
        "org.opencontainers.image.base.name": conversion.session.image.reference,
    }
    return archive.NewImage(reference=conversion.reference, created_at=now, labels=labels)


def _clear(runtime: Runtime, conversion: Conversion, problem: str) -> None:
    """Leave nothing of the conversion behind, and let it have failed."""
    engine = runtime.image_engine
    if engine and not Image.objects.filter(reference=conversion.reference, removed_at=None).exists():
        engine.untag(conversion.reference)
        if conversion.state == ConversionState.PUSHING:
            _is_unpushed(conversion.reference)
    conversions.fail(conversion, problem)


def _engine(runtime: Runtime) -> ImageEngine:
    if engine := runtime.image_engine:
        return engine
    raise SnapshotError(NO_ENGINE)


@contextmanager
def _lock(conversion_id: str) -> Iterator[bool]:
    """Hold the conversion's lock, across threads and processes, unless another does: then give False.

    An advisory lock of the database connection, outside any transaction: the death of the holder frees it.
    """
    arguments = (CONVERSION_LOCK, conversion_id)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s, hashtext(%s))", arguments)
        row = cursor.fetchone()
    is_ours = bool(row and row[0])
    try:
        yield is_ours
    finally:
        if is_ours:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s, hashtext(%s))", arguments)
