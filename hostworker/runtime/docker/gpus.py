"""What a Docker Engine says of itself and of images that matters to containers with real GPUs or other devices."""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from docker.errors import ImageNotFound

from hostworker.runtime.container_config import real_gpus
from hostworker.runtime.docker.client import ProcessClient
from hostworker.runtime.docker.images.saved import environment_of
from hostworker.runtime.engine_requests import translated
from hostworker.runtime.gpu_access import (
    LEGACY,
    GpuAccess,
    accelerators_here,
    add_accelerators,
    choose,
    runs_hooks,
)
from hostworker.runtime_protocol import ContainerSpec, ImageUnavailableError, StartError
from resources.accelerators.devices import Accelerator
from resources.accelerators.discovery import AcceleratorSource
from resources.accelerators.kinds import NVIDIA

logger = logging.getLogger(__name__)

INFO_SECONDS: Final = 60.0  # within which a new CDI specification or a restart with other settings is noticed


class DockerGpus:
    """Asks only where a container has devices, or vendors' hooks: others start without a further request."""

    def __init__(self, client: ProcessClient, accelerators: AcceleratorSource | None = None) -> None:
        self._client = client
        self._accelerators = accelerators
        self._info: tuple[float, Mapping[str, Any]] | None = None  # when it was asked, and the answer

    def access(self, spec: ContainerSpec) -> GpuAccess:
        """Return how the engine is to be asked for the container's devices. Raises StartError where one is gone."""
        uuids = real_gpus(spec)
        others = [gpu.uuid for gpu in spec.gpus if gpu.kind != NVIDIA]
        access = choose(self._engine_info(), uuids) if uuids else LEGACY
        return add_accelerators(access, self._engine_info(), self._found(others)) if others else access

    def _found(self, uids: Sequence[str]) -> list[Accelerator]:
        """Return these devices as the host has them now: what a container gets is told by root's files alone."""
        found = accelerators_here(self._accelerators, self._engine_info())
        known = {each.uid: each for each in found.accelerators}
        if lost := [uid for uid in uids if uid not in known]:
            logger.error("device %s: not found. %s", lost[0], " ".join(found.problems))  # which name files of the host
            raise StartError(f"Its host does not have the device {lost[0]} any more.")
        return [known[uid] for uid in uids]

    def image_environment(self, spec: ContainerSpec) -> list[str]:
        """Return the image's variables, each as NAME=value, if vendors' hooks run for the container; one request."""
        with translated(StartError, "The image could not be inspected: {}".format):
            if not real_gpus(spec) and not runs_hooks(self._engine_info()):
                return []
            try:
                return environment_of(self._client().inspect_image(spec.image))
            except ImageNotFound:
                raise ImageUnavailableError(f"Image {spec.image} is not on the host.") from None

    def _engine_info(self) -> Mapping[str, Any]:
        known, now = self._info, time.monotonic()
        if known is None or now - known[0] > INFO_SECONDS:
            known = self._info = (now, self._client().info())
        return known[1]
