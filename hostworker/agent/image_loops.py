"""What a host worker does about images, again and again."""

from hostworker.containers import parking
from hostworker.images import host_images, image_maker
from hostworker.runtime_protocol import Runtime
from resources.models import Host


class ImageLoops:
    """Calls for the loops of one host."""

    def __init__(self, runtime: Runtime, host: Host) -> None:
        self._runtime = runtime
        self._host = host

    def report_images(self) -> None:
        """Record which of the known images this host has."""
        host_images.report(self._runtime, self._host)

    def pull_images(self) -> None:
        """Pull the images that administrators want here."""
        host_images.pull_requested(self._runtime, self._host)

    def clear_images(self) -> None:
        """Remove deleted and replaced images, what conversions left, and the files of parked sessions that ended."""
        image_maker.remove_deleted(self._runtime, self._host)
        self._runtime.images.remove_replaced()
        parking.clear_saved(self._runtime, self._host)
