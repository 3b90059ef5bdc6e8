"""What a Docker Engine says of itself and of images that matters to containers with real GPUs."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from docker.errors import ImageNotFound

from hostworker.runtime.container_config import real_gpus
from hostworker.runtime.docker.client import ProcessClient
from hostworker.runtime.docker.images.saved import environment_of
from hostworker.runtime.engine_requests import translated
from hostworker.runtime.gpu_access import LEGACY, GpuAccess, choose
from hostworker.runtime_protocol import ContainerSpec, ImageUnavailableError, StartError

INFO_SECONDS: Final = 60.0  # within which a new CDI specification or a restart with other settings is noticed


class DockerGpus:
    """Asks only where a container has real GPUs: others start without a further request."""

    def __init__(self, client: ProcessClient) -> None:
        self._client = client
        self._info: tuple[float, Mapping[str, Any]] | None = None  # when it was asked, and the answer

    def access(self, uuids: Sequence[str]) -> GpuAccess:
        """Return how the engine is to be asked for these devices."""
        return choose(self._engine_info(), uuids) if uuids else LEGACY

    def image_environment(self, spec: ContainerSpec) -> list[str]:
        """Return the image's variables, each as NAME=value, if NVIDIA's hooks run for the container; one request."""
        if not real_gpus(spec):
            return []
        with translated(StartError, "The image could not be inspected: {}".format):
            try:
                return environment_of(self._client().inspect_image(spec.image))
            except ImageNotFound:
                raise ImageUnavailableError(f"Image {spec.image} is not on the host.") from None

    def _engine_info(self) -> Mapping[str, Any]:
        known, now = self._info, time.monotonic()
        if known is None or now - known[0] > INFO_SECONDS:
            known = self._info = (now, self._client().info())
        return known[1]
