"""The build queue: which images of the catalogue are to be built, how far that is, and what users read about it."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import connection
from django.db.models import QuerySet
from django.utils import timezone

from resources.models import BuildState, Image, ImageBuild

BUILD_LOCK: Final = 0x47504249  # "GPBI": the advisory lock that lets one process at a time build images
EXPECTED_DURATION: Final = timedelta(minutes=2)  # of a build that has never ended here
ACTIVE: Final = (BuildState.QUEUED, BuildState.BUILDING)
PROBLEM_LENGTH: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildStatus:
    """How far the build of an image is, in words for users; `problem` is for administrators."""

    image: Image
    state: BuildState
    text: str
    step: int
    steps: int
    is_usable: bool
    problem: str

    @property
    def is_active(self) -> bool:
        """True while the build waits or runs."""
        return self.state in ACTIVE


@contextmanager
def exclusive() -> Iterator[bool]:
    """Hold the build lock for the block and yield True; yield False where another process holds it.

    The lock belongs to the database connection, so that the death of its holder frees it.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [BUILD_LOCK])
        (is_ours,) = cursor.fetchone() or (False,)
    try:
        yield is_ours
    finally:
        if is_ours:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [BUILD_LOCK])


def enqueue(image: Image, position: int, *, is_usable: bool) -> None:
    """Queue the build of an image; call it with the lock held. `is_usable` tells whether an older one is there."""
    values = {"state": BuildState.QUEUED, "position": position, "is_usable": is_usable, "problem": "", "step": 0}
    ImageBuild.objects.update_or_create(image=image, defaults=values)


def mark_current(image: Image, position: int) -> None:
    """Record that the engine holds the image as the catalogue says; call it with the lock held."""
    values = {"state": BuildState.READY, "position": position, "is_usable": True, "problem": ""}
    ImageBuild.objects.update_or_create(image=image, defaults=values)


def has_work() -> bool:
    """Return whether the build of an enabled image waits, or was cut short."""
    return ImageBuild.objects.filter(state__in=ACTIVE, image__is_enabled=True).exists()


def claim(image: Image | None = None) -> ImageBuild | None:
    """Return the first build of an enabled image that waits, or that of `image`, now building; None without one.

    Call it with the lock held: what is BUILDING then was cut short by the death of its process, and is begun anew.
    """
    builds = ImageBuild.objects.filter(state__in=ACTIVE).select_related("image")
    build = builds.filter(**({"image": image} if image else {"image__is_enabled": True})).first()
    if build:
        _update(build, state=BuildState.BUILDING, step=0, steps=0, started_at=timezone.now(), problem="")
    return build


def record_step(build: ImageBuild, step: int, steps: int) -> None:
    """Record which step of how many the build has come to."""
    _update(build, step=step, steps=steps)


def finish(build: ImageBuild, duration: timedelta | None) -> None:
    """Record that the image is there; `duration` is None where nothing had to be built."""
    _update(build, state=BuildState.READY, is_usable=True, last_duration=duration or build.last_duration)


def fail(build: ImageBuild, problem: str) -> None:
    """Record why the image could not be built; an older one stays usable."""
    _update(build, state=BuildState.FAILED, problem=problem[-PROBLEM_LENGTH:].replace("\0", ""))


def retry(images: QuerySet[Image]) -> int:
    """Queue the failed builds of these images again; return how many."""
    failed = ImageBuild.objects.filter(image__in=images, state=BuildState.FAILED)
    return failed.update(state=BuildState.QUEUED, problem="", step=0)


def build_of(image: Image) -> ImageBuild | None:
    """Return the build of an image, None for one that is not built here."""
    return getattr(image, "build", None)


def is_usable(image: Image) -> bool:
    """Return whether sessions can run the image, as far as its build is concerned."""
    build = build_of(image)
    return build is None or build.is_usable


def refusal(image: Image) -> str | None:
    """Return why no session of the image can be launched yet, or None."""
    build = build_of(image)
    if build is None or build.is_usable:
        return None
    if build.state == BuildState.FAILED:
        return f"{image} could not be built. An administrator can have it built again."
    texts = {status.image.pk: status.text for status in statuses()}
    return f"{image} is not ready yet: {texts.get(image.pk, 'it is being built')}."


def statuses() -> list[BuildStatus]:
    """Return the builds of enabled images that wait, run or have failed, in the order of the queue; one query."""
    builds = ImageBuild.objects.filter(image__is_enabled=True).exclude(state=BuildState.READY).select_related("image")
    now, before = timezone.now(), timedelta()
    found = []
    for build in sorted(builds, key=lambda each: each.state != BuildState.BUILDING):
        state = BuildState(build.state)
        if state in ACTIVE:
            before += _remaining(build, now)
        found.append(
            BuildStatus(
                image=build.image,
                state=state,
                text=_text(build, state, before),
                step=build.step,
                steps=build.steps,
                is_usable=build.is_usable,
                problem=build.problem,
            )
        )
    return found


def _text(build: ImageBuild, state: BuildState, left: timedelta) -> str:
    if state is BuildState.FAILED:
        return "could not be built"
    about = _minutes(left)
    if state is BuildState.QUEUED:
        return f"waits to be built, {about}"
    step = f"step {build.step} of {build.steps}" if build.steps else "preparing its base"
    return f"building, {step}, {about}" if left else f"building, {step}"


def _remaining(build: ImageBuild, now: datetime) -> timedelta:
    expected = build.last_duration or EXPECTED_DURATION
    if build.state == BuildState.BUILDING and build.started_at:
        return max(timedelta(), expected - (now - build.started_at))
    return expected


def _minutes(span: timedelta) -> str:
    minutes = math.ceil(span.total_seconds() / 60 - 0.25)
    if minutes < 1:
        return "less than a minute"
    return "about a minute" if minutes == 1 else f"about {minutes} minutes"


def _update(build: ImageBuild, **values: Any) -> None:
    """Write these fields; a build that was deleted with its image meanwhile stays deleted."""
    for name, value in values.items():
        setattr(build, name, value)
    ImageBuild.objects.filter(pk=build.pk).update(**values)
