"""`manage.py doctor`: say what is missing or broken on this machine."""

import logging
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.template.defaultfilters import pluralize

from operations.doctor import machine as doctor
from operations.doctor.findings import Verdict


class Command(BaseCommand):
    """Works when everything is down; ends with status 1 when something makes it impossible to run."""

    help = "Check machine, settings, services, hosts and images: one line each, with what to do."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("checks", nargs="*", help='names of checks, such as "networks of clusters"; none: all')

    def handle(self, *args: Any, checks: list[str], **options: Any) -> None:
        """Print a line for each check."""
        if unknown := set(checks) - set(doctor.CHECKS):
            raise CommandError(f"There is no check {unknown.pop()!r}. There are: {', '.join(doctor.CHECKS)}.")
        failed = 0
        logging.disable(logging.CRITICAL)  # what is wrong has a line in the table
        try:
            findings = doctor.examine(checks)
        finally:
            logging.disable(logging.NOTSET)
        for name, finding in findings:
            self.stdout.write(finding.line(name))
            failed += finding.verdict is Verdict.FAIL
        if failed:
            self.stdout.write(f"{failed} check{pluralize(failed)} failed")
            sys.exit(1)
