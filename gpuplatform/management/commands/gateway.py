"""`manage.py gateway`: lets the web process of another machine reach the sessions of this host."""

import logging
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from engine.containers import HOST_LABEL, INSTALLATION_LABEL
from gpuplatform.serving.web_server import ServerConfig, listener_at, processes_of, serve
from hostaccess.keys import HostKeyError, gateway_keys
from operations.machine.address import address_from
from resources.models import Installation
from resources.versions import VERSION_TAG

logger = logging.getLogger(__name__)


class Command(BaseCommand):
    """Serves signed requests alone, and those only for containers of sessions on this host."""

    help = "Let the web process on another machine reach terminals, logs and apps of this host's sessions."
    requires_system_checks = (VERSION_TAG,)  # others load all pages: terminals would wait longer for a restart

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--processes", type=int, default=settings.COMPUTE_WEB_PROCESSES, help="0: one for each core, from 2 to 4"
        )

    def handle(self, *args: Any, processes: int, **options: Any) -> None:
        """Run until SIGTERM or Ctrl-C; SIGHUP restarts one process after another where there are several."""
        address, host = settings.COMPUTE_GATEWAY_ADDRESS, settings.COMPUTE_HOST_NAME
        if not address:
            raise CommandError("COMPUTE_GATEWAY_ADDRESS is not set, so there is nothing to listen on")
        try:
            keys = gateway_keys(host)
        except HostKeyError as error:
            raise CommandError(str(error)) from error
        config = ServerConfig(
            "gpuplatform.serving.data_plane.gateway",
            processes=processes_of(processes),
            keys=keys,
            labels={INSTALLATION_LABEL: Installation.current_key(), HOST_LABEL: host},
        )
        listener = listener_at(address_from(address))
        logger.info("gateway of %s: listens on %s", host, address)
        serve(config, listener)
