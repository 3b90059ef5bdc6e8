"""`manage.py imagebuilder`: build the images that wait, one after another, while the platform runs."""

import logging
import os
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.core.management.base import BaseCommand
from docker import DockerClient
from docker.errors import DockerException
from requests.exceptions import RequestException

from resources import heartbeats
from resources.heartbeats import HeartbeatName
from resources.images import background, builds
from resources.versions import VERSION_TAG

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 2.0


class Command(BaseCommand):
    """Runs until stopped. Its death costs a build that is begun anew, and two of them take turns."""

    requires_system_checks = (VERSION_TAG,)
    help = "Queue the images of images/catalog.toml that are missing or outdated, and build what is queued."

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until SIGTERM or Ctrl-C."""
        folder: Path = settings.BASE_DIR / "images"
        with closing(_engine()) as engine:
            heartbeats.keep(HeartbeatName.IMAGES)
            background.enqueue_catalog(engine, folder, os.environ, with_registries=True, report=logger.info)
            while True:
                if not (builds.has_work() and background.build_next(engine, folder, os.environ, logger.info)):
                    time.sleep(POLL_SECONDS)


def _engine() -> DockerClient:
    """Return a client, whose making asks the engine for its version, once that responds."""
    while True:
        try:
            return DockerClient(base_url=settings.COMPUTE_DOCKER_URL)
        except (DockerException, RequestException) as error:
            logger.warning("images wait for the Docker Engine: %s", error)
            time.sleep(POLL_SECONDS)
