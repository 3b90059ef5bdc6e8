"""`manage.py sshserver`: serve running sessions over SSH."""

import asyncio
import logging
import signal
from pathlib import Path
from typing import Any

import asyncssh
from channels.db import database_sync_to_async
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import Error

from accounts.credentials.ssh_keys import record_ssh_host_key
from gpuplatform.ending import end_in_time
from operations.machine.address import SSH_SETTING, address_from
from operations.machine.progress import SetupError
from proxy.limits import OpenFileLimitError, raise_open_file_limit
from resources import heartbeats
from resources.heartbeats import HeartbeatName
from resources.versions import VERSION_TAG
from sessions.access import activity
from sshserver.host_key import load_host_key
from sshserver.server import SshServer

logger = logging.getLogger(__name__)


class Command(BaseCommand):
    """Runs until SIGTERM or Ctrl-C; any number may run at once, on one host key."""

    requires_system_checks = (VERSION_TAG,)  # others load all pages; the web server has them made
    help = "Listen for SSH at COMPUTE_SSH_ADDRESS, and serve running sessions to their users."

    def handle(self, *args: Any, **options: Any) -> None:
        """Serve until stopped. Raises CommandError where that cannot be."""
        logging.getLogger("asyncssh").setLevel(logging.WARNING)  # a line for every packet's turn otherwise
        try:
            raise_open_file_limit()
            asyncio.run(_serve())
        except (OSError, OpenFileLimitError, SetupError, asyncssh.KeyImportError) as error:
            raise CommandError(str(error)) from error


async def _serve() -> None:
    where = address_from(settings.COMPUTE_SSH_ADDRESS, SSH_SETTING)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    host_key = load_host_key(Path(settings.COMPUTE_VAR_DIR))
    try:
        await database_sync_to_async(record_ssh_host_key)(host_key.export_public_key().decode())
    except Error as error:
        logger.warning("SSH: the host key could not be recorded, so no page shows it: %s", error)
    async with SshServer(activity.used).listening(where.host, where.port, host_key):
        beats = asyncio.create_task(_keep_heartbeat())
        await stop.wait()
        end_in_time()
        beats.cancel()


async def _keep_heartbeat() -> None:
    """Note that the event loop runs, again and again."""
    while True:
        await asyncio.to_thread(heartbeats.note, HeartbeatName.SSH)
        await asyncio.sleep(heartbeats.KEEP_SECONDS)
