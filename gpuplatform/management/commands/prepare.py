"""`manage.py prepare`: have the machine ready, without touching the platform's data."""

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from gpuplatform.bootstrap import installation
from operations.machine.progress import Progress, SetupError


class Command(BaseCommand):
    """Installs missing programs where possible, else prints what to install."""

    help = "Have a Docker Engine and the needed programs of the operating system; with --tests, those of the tests too."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--tests", action="store_true", help="also what only the tests need")

    def handle(self, *args: Any, tests: bool, **options: Any) -> None:
        """Prepare; raise CommandError with what to do where something is missing."""
        progress = Progress(sys.stdout)
        try:
            with progress.errors_explained():
                installation.prepare_machine(progress, for_tests=tests)
        except SetupError as problem:
            raise CommandError(str(problem)) from None
