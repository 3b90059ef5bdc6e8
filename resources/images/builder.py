"""Build the catalogue's images with the engine's API, each only when its inputs have changed."""

import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from docker import DockerClient
from docker.errors import DockerException, ImageNotFound
from urllib3.exceptions import HTTPError

from resources.images import replaced as replaced_images
from resources.images import trust, wheels
from resources.images.base import BaseImageError, Bases, Report
from resources.images.catalogue import inputs
from resources.images.catalogue.catalog import Entry
from resources.images.catalogue.recipes import Recipe
from resources.images.wheels import WheelError

SILENCE_SECONDS: Final = 1800  # the engine may be quiet for this long within a build; pip is, for minutes
TAIL_LINES: Final = 30
STEP_LENGTH: Final = 100
WHEELS_STAGE_LABEL: Final = "gpuplatform.stage=wheels"  # as in the Dockerfile
_STEP: Final = re.compile(r"Step (\d+)/(\d+) ")

StepReport = Callable[[int, int], None]  # gets the number of the step that begins, and of all


def ignore_step(step: int, steps: int) -> None:
    """Report nothing."""


class ImageBuildError(Exception):
    """An image could not be built; the message has the command that failed and the tail of its output."""


class BuildOutcome(StrEnum):
    """How the build of an image ended."""

    BUILT = "built"
    CURRENT = "up to date"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class BuildResult:
    """The result of building one entry; `problem` is the cause if it failed."""

    entry: Entry
    outcome: BuildOutcome
    seconds: float
    problem: str = ""


class Builder:
    """Builds images from one folder with one engine, with the network settings and certificates of this process."""

    def __init__(
        self, engine: DockerClient, folder: Path, environ: Mapping[str, str], *, force: bool, report: Report
    ) -> None:
        """Read the context from `folder`; with `force` build everything anew on a new base; `report` gets sentences."""
        self._engine, self._force, self._report = engine, force, report
        self._files = inputs.context_files(folder, trust.host_certificates(environ))
        self._environ = environ
        self._network = inputs.network_arguments(environ)
        self._bases = Bases(engine, refresh=force, report=report)
        self._refresh = {"REFRESH": str(time.time_ns())} if force else {}
        for name in inputs.indexes_with_passwords(environ):
            report(f"{name} has a password, which would stay readable in the image: not used for the build")

    def is_current(self, entry: Entry, recipe: Recipe) -> bool:
        """Return whether the engine holds the image, built from what would be built now; never with `force`."""
        digest = inputs.inputs_digest(self._files, recipe)
        return not self._force and built_digest(self._engine, entry.reference) == digest

    def build(self, entry: Entry, recipe: Recipe, on_step: StepReport = ignore_step) -> BuildResult:
        """Build the image of an entry unless it is there with the same inputs. Never raises for a failed build."""
        started = time.monotonic()
        try:
            if self.is_current(entry, recipe):
                return BuildResult(entry, BuildOutcome.CURRENT, time.monotonic() - started)
            self._build(entry, recipe, on_step)
        except (ImageBuildError, BaseImageError, WheelError, DockerException, HTTPError, OSError) as error:
            return BuildResult(entry, BuildOutcome.FAILED, time.monotonic() - started, str(error))
        return BuildResult(entry, BuildOutcome.BUILT, time.monotonic() - started)

    def _build(self, entry: Entry, recipe: Recipe, on_step: StepReport) -> None:
        base = self._bases.reference(recipe.suite)
        machine: str = self._engine.info()["Architecture"]
        replaced = self._image_id(entry.reference)
        with (
            wheels.fetched(recipe, machine, self._environ, self._report) as files,
            inputs.context_archive(self._files, files) as archive,
        ):
            events = self._engine.api.build(
                fileobj=archive,
                custom_context=True,
                tag=entry.reference,
                buildargs={"BASE": base} | recipe.arguments() | self._refresh | self._network,
                labels={inputs.INPUTS_LABEL: inputs.inputs_digest(self._files, recipe)},
                network_mode="host",
                rm=True,
                forcerm=True,
                timeout=SILENCE_SECONDS,
                decode=True,
            )
            follow_build(events, lambda step: self._report(f"{entry.label}: {step}"), on_step)
        if recipe.wheels:  # the stage that had the files themselves
            self._engine.images.prune({"dangling": True, "label": WHEELS_STAGE_LABEL})
        if replaced and replaced != self._image_id(entry.reference):
            with suppress(DockerException):  # otherwise every update would leave a gigabyte behind
                replaced_images.mark(self._engine.api, replaced)
                replaced_images.remove_unused(self._engine.api)

    def _image_id(self, reference: str) -> str | None:
        try:
            return self._engine.images.get(reference).id
        except ImageNotFound:
            return None


def built_digest(engine: DockerClient, reference: str) -> str | None:
    """Return the digest of the inputs that an image was built from; None when it is not there or not ours."""
    try:
        labels = engine.images.get(reference).labels
    except ImageNotFound:
        return None
    return labels.get(inputs.INPUTS_LABEL)


def follow_build(events: Iterable[Mapping[str, object]], report: Report, on_step: StepReport = ignore_step) -> None:
    """Read the engine's build events to their end, reporting each command that is really run. Raise ImageBuildError.

    `on_step` gets the number of each step, cached ones included, and of all steps.
    """
    step, tail = "", deque[str](maxlen=TAIL_LINES)
    for event in events:
        if "error" in event:
            output = "\n".join(tail)
            raise ImageBuildError(f"{step or 'the build'}\n{output}\n{event['error']}")
        for line in str(event.get("stream", "")).splitlines():
            if line.startswith("Step "):
                step = line
                tail.clear()
                if match := _STEP.match(line):
                    on_step(int(match[1]), int(match[2]))
            elif line.startswith(" ---> Running in") and " : RUN " in step:
                report(_shortened(step))
            elif line.strip():
                tail.append(line)


def _shortened(step: str) -> str:
    words = " ".join(step.split())
    return words if len(words) <= STEP_LENGTH else f"{words[: STEP_LENGTH - 3]}..."
