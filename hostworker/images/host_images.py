"""The images of a host: which of the known ones it has, pulls for its sessions, and pulls that administrators ask for.

Idempotent; what a worker that died was pulling is pulled again.
"""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Final

from django.db import connection, transaction
from django.db.models import QuerySet

from hostworker.runtime_protocol import ContainerRuntimeError, HeldImage, ImageUnavailableError, Runtime
from resources import clock
from resources.kick import kick_scheduler
from resources.models import Host, HostImage, Image, ImagePull, ImageSource, PullState
from resources.registries.credentials import CredentialsError, login_for
from resources.registries.login import ANONYMOUS, RegistryLogin
from sessions.launching.image_choice import is_built

logger = logging.getLogger(__name__)

REPORT_SECONDS: Final = 60
PULL_POLL_SECONDS: Final = 1  # of the answer that loops share, which is not asked for as often
NOT_OFFERED: Final = "there is no such image, or it needs a login"  # what a registry's refusal is called, too


def report(runtime: Runtime, host: Host) -> None:
    """Record which of the known images the host has, and what its engine says of those that were not scanned.

    Two queries, more where something has changed. Raises EngineUnreachableError.
    """
    begun = clock.now()
    known = list(Image.objects.order_by().only("reference", "architecture", "size"))
    held = runtime.images.find({image.reference for image in known})
    here = {image.pk: held[image.reference] for image in known if image.reference in held}
    if _record(host, here, begun):
        kick_scheduler()
    for image in known:
        if (found := here.get(image.pk)) and (not image.architecture or image.size is None):
            _complete(image, found)


def is_here(runtime: Runtime, image: Image) -> bool:
    """Return whether a session can start without asking a registry. Raises EngineUnreachableError."""
    return image.source != ImageSource.UNLISTED and runtime.images.has(image.reference)


def ensure(runtime: Runtime, image: Image, on_progress: Callable[[str], None]) -> bool:
    """Have the image of a session on this host; return whether it was pulled.

    No registry is asked for one that the platform builds, as anybody could offer another by its name. One that its
    owner named without an administrator is asked of its registry each time, without any login: that another has pulled
    it here gives no right to it. Raises ImageUnavailableError.
    """
    sentences: list[str] = []

    def on_first(text: str) -> None:
        sentences.append(text)
        on_progress(text)

    if is_built(image.reference) and not runtime.images.has(image.reference):
        raise ImageUnavailableError(f"Image {image.reference} is not on this host, and is built there, not pulled.")
    if image.source != ImageSource.UNLISTED:
        runtime.images.ensure(image.reference, on_first, lambda: _login_for(image.reference))
    elif _is_registered(image):
        raise ImageUnavailableError(f"Image {image.reference} could not be pulled: {NOT_OFFERED}.")
    else:
        runtime.images.ensure(image.reference, on_first, lambda: ANONYMOUS, always_pull=True)
    return bool(sentences)


def resume_pulls(host: Host) -> None:
    """Let the pulls that an earlier worker has left be taken up again."""
    ImagePull.objects.filter(host=host, state=PullState.PULLING).update(state=PullState.WAITING)


def waiting_pulls(host: Host) -> QuerySet[ImagePull]:
    """Return the pulls that wait for this host."""
    return ImagePull.objects.filter(host=host, state=PullState.WAITING)


def pull_requested(runtime: Runtime, host: Host) -> None:
    """Do the pulls that wait for this host, one after the other; their rows tell how they go."""
    waiting = waiting_pulls(host).select_related("image").order_by("requested_at")
    done = [_pull(runtime, pull) for pull in waiting]
    if any(done):
        report(runtime, host)


def _pull(runtime: Runtime, pull: ImagePull) -> bool:
    row = ImagePull.objects.filter(pk=pull.pk)
    if not row.filter(state=PullState.WAITING).update(state=PullState.PULLING, detail=""):
        return False
    reference = pull.image.reference

    def on_progress(text: str) -> None:
        row.update(detail=text[:300])

    try:
        runtime.images.ensure(reference, on_progress, lambda: _login_for(reference), always_pull=True)
    except ContainerRuntimeError as error:
        row.update(state=PullState.FAILED, detail=str(error)[:300])
        return False
    row.update(state=PullState.DONE, detail="")
    return True


def _record(host: Host, here: dict[int, HeldImage], begun: datetime) -> bool:
    """Bring the rows of a host in line; return whether images came or went. A row made since `begun` is kept."""
    rows = HostImage.objects.filter(host=host)
    known = dict(rows.values_list("image_id", "size"))
    new = [
        HostImage(host=host, image_id=pk, size=image.size_bytes, seen_at=begun)
        for pk, image in here.items()
        if pk not in known
    ]
    if not new and known == {pk: image.size_bytes for pk, image in here.items()}:
        return False
    with transaction.atomic():
        HostImage.objects.bulk_create(new, ignore_conflicts=True)
        gone, _ = rows.exclude(image__in=here).filter(seen_at__lt=begun).delete()
        for pk, image in here.items():
            if known.get(pk, image.size_bytes) != image.size_bytes:
                rows.filter(image=pk).update(size=image.size_bytes)
    return bool(new or gone)


def _complete(image: Image, found: HeldImage) -> None:
    """Enter what the engine knows where nothing is entered yet; a host has no right to change images otherwise."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT resources_complete_image(%s, %s, %s)", [image.pk, found.architecture, found.size_bytes])


def _is_registered(image: Image) -> bool:
    """Return whether the name belongs to an image that an administrator registered or a session was made into.

    Pulling it from elsewhere would put another image under that name on the host.
    """
    return Image.objects.filter(reference=image.reference).exclude(source=ImageSource.UNLISTED).exists()


def _login_for(reference: str) -> RegistryLogin | None:
    """Return the login that the platform has for the registry of an image. Raise ImageUnavailableError."""
    try:
        return login_for(reference)
    except CredentialsError as error:
        logger.error("%s", error)
        text = f"Image {reference} could not be pulled: the password of its registry has to be entered again."
        raise ImageUnavailableError(text) from error
