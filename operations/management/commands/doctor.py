"""`manage.py doctor`: say what is missing or broken on this machine."""

import logging
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError
from django.template.defaultfilters import pluralize

from operations.doctor import gpu_protocol
from operations.doctor import machine as doctor
from operations.doctor.findings import Verdict
from resources.hosts.measurements import MeasurementError, summary


class Command(BaseCommand):
    """Works when everything is down; ends with status 1 when something makes it impossible to run."""

    help = "Check machine, settings, services, hosts and images: one line each, with what to do."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("checks", nargs="*", help='names of checks, such as "networks of clusters"; none: all')
        parser.add_argument(
            "--gpu",
            nargs="?",
            const="0",
            metavar="GPU",
            help="measure for ten minutes how shares of a GPU are held: the first one, or that of this index or UUID",
        )
        parser.add_argument("--gpu-report", type=Path, metavar="FILE", help="store the report of a run by hand")
        parser.add_argument("--python", default="", help="with --gpu: whose PyTorch and JAX are tried")
        parser.add_argument("--force", action="store_true", help="with --gpu: also while others use the GPU")

    def handle(self, *args: Any, checks: list[str], **options: Any) -> None:
        """Print a line for each check; or measure, and say what came of it."""
        if options["gpu"] is not None or options["gpu_report"]:
            self._measure(**options)
            return
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

    def _measure(self, *, gpu: str | None, gpu_report: Path | None, python: str, force: bool, **options: Any) -> None:
        try:
            if gpu_report:
                found = gpu_protocol.report(gpu_report)
            else:
                found = gpu_protocol.measure(gpu or "0", python=python, force=force)
        except (DatabaseError, MeasurementError) as error:
            raise CommandError(str(error).strip()) from error
        self.stdout.write(f"{summary(found)}\nThe page of the host in the administration shows it.")
        if found.failed:
            sys.exit(1)
