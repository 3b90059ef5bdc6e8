"""`manage.py backup`: write the database and the settings to one file."""

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from gpuplatform.bootstrap import installation
from operations import backups
from operations.machine.progress import Progress, SetupError


class Command(BaseCommand):
    """Disturbs no running platform: the file has the state of one moment."""

    help = "Write the database and the settings to one file, and print its path. It holds secrets: keep it safe."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("folder", nargs="?", default=settings.COMPUTE_BACKUP_DIR, help="default: %(default)s")
        parser.add_argument("--keep", type=int, default=0, help="delete all but so many of the newest; 0: none")

    def handle(self, *args: Any, folder: str, keep: int, **options: Any) -> None:
        """Make the backup."""
        progress = Progress(sys.stderr)
        try:
            with progress.errors_explained(), installation.own_services(progress, take_over=False, needs_redis=False):
                made = backups.make(Path(folder), keep=keep)
        except (SetupError, backups.BackupError) as error:
            raise CommandError(str(error)) from None
        self.stdout.write(str(made))
