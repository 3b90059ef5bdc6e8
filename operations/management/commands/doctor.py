"""`manage.py doctor`: say what is missing or broken on this machine."""

import logging
import sys
from typing import Any

from django.core.management.base import BaseCommand
from django.template.defaultfilters import pluralize

from operations.doctor import machine as doctor
from operations.doctor.findings import Verdict


class Command(BaseCommand):
    """Works when everything is down; ends with status 1 when something makes it impossible to run."""

    help = "Check machine, settings, services, hosts and images: one line each, with what to do."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Print a line for each check."""
        failed = 0
        logging.disable(logging.CRITICAL)  # what is wrong has a line in the table
        try:
            findings = doctor.examine()
        finally:
            logging.disable(logging.NOTSET)
        for name, finding in findings:
            self.stdout.write(finding.line(name))
            failed += finding.verdict is Verdict.FAIL
        if failed:
            self.stdout.write(f"{failed} check{pluralize(failed)} failed")
            sys.exit(1)
