"""The tasks that make backups, and remove what was kept for long enough, while the platform runs."""

import logging
import subprocess
import sys
from pathlib import Path

from celery import shared_task
from django.conf import settings
from django.utils import timezone

from messaging.background import BackgroundThread
from operations import backup_files, retention
from operations.logs import rotation
from resources import clock

logger = logging.getLogger(__name__)

_last: "subprocess.Popen[bytes] | None" = None
_remover = BackgroundThread("retention")  # scheduling does not wait for it


@shared_task
def remove_old() -> None:
    """Have what was kept for long enough removed, in a thread."""
    _remover.run(_remove_old)


def _remove_old() -> None:
    try:
        rotation.rotate(settings.COMPUTE_VAR_DIR)
    except OSError as error:
        logger.warning("logs are not rotated: %s", error)
    retention.remove_old(clock.now())


@shared_task
def back_up_if_due() -> None:
    """Begin a backup if the newest is old enough, in a process of its own: the scheduler shares this one."""
    global _last
    is_busy = _last is not None and _last.poll() is None
    folder = Path(settings.COMPUTE_BACKUP_DIR)
    if not is_busy and backup_files.is_due(folder, settings.COMPUTE_BACKUP_HOURS, timezone.now()):
        command = (sys.executable, "manage.py", "backup", "--keep", str(settings.COMPUTE_BACKUPS_KEPT))
        _last = subprocess.Popen(command, cwd=settings.BASE_DIR, stdin=subprocess.DEVNULL)
