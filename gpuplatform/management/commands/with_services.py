"""`manage.py with_services COMMAND...`: run another command while the embedded services are up."""

import sys
from argparse import REMAINDER, ArgumentParser
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand

from gpuplatform.bootstrap import installation
from operations.machine.progress import Progress


class Command(BaseCommand):
    """Starts the services that do not run, and stops those again; a running platform is not disturbed."""

    help = "Run a management command with the embedded PostgreSQL and Redis up."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the command and its arguments."""
        parser.add_argument("command_line", nargs=REMAINDER, metavar="COMMAND...")

    def handle(self, *args: Any, command_line: list[str], **options: Any) -> None:
        """Run the command between starting and stopping."""
        with installation.own_services(Progress(sys.stdout), take_over=False):
            call_command("migrate", interactive=False, verbosity=0)
            call_command(*command_line)
