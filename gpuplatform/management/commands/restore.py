"""`manage.py restore`: replace the database by that of a backup."""

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from gpuplatform.bootstrap import installation
from operations import backups
from operations.machine import one_at_a_time
from operations.machine.progress import Progress, SetupError


class Command(BaseCommand):
    """Works on a stopped platform; sessions whose containers still run are found again by their hosts."""

    help = "Replace the database by that of a backup, and bring it to this version. The platform must be stopped."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="that `manage.py backup` has written")
        parser.add_argument("--replace", action="store_true", help="delete the users and sessions that there are now")

    def handle(self, *args: Any, file: Path, replace: bool, **options: Any) -> None:
        """Restore; raise CommandError, with nothing changed, where that cannot be."""
        progress = Progress(sys.stdout)
        lock = Path(settings.COMPUTE_VAR_DIR) / "up.lock"
        try:
            with (
                one_at_a_time.hold(lock),
                progress.errors_explained(),
                installation.own_services(progress, take_over=True, needs_redis=False),
            ):
                with progress.step("Restoring the database"):
                    manifest = backups.restore(file, replace=replace)
                with progress.step("Bringing its tables to this version"):
                    call_command("migrate", interactive=False, verbosity=0)
        except (SetupError, backups.BackupError) as problem:
            raise CommandError(str(problem)) from None
        progress.say(f"Restored what was there at {manifest.made_at}. Start the platform again.")
