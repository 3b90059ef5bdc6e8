#!/usr/bin/env python
"""Django's command-line entry point."""

import os
import signal
import sys
import traceback
from importlib import import_module
from pathlib import Path

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line
from django.utils.log import configure_logging

SPAWNING = {"web", "appproxy"}  # load Django's applications in the processes that they start, and not before
HINT = "See .env and docs/settings.md; `make ready` writes a new .env."


def read_settings() -> None:
    """Import the settings; end with a sentence, naming the line, where a value is not of its type."""
    try:
        import gpuplatform.settings  # noqa: F401  # only whether it can be imported
    except ValueError as error:
        where = traceback.extract_tb(error.__traceback__)
        line = next((frame.line for frame in where if frame.filename.endswith("gpuplatform/settings.py")), "")
        sys.exit(f"The settings are not right: {error}, in: {line}\n{HINT}")


def execute() -> None:
    """Carry out the command of this process."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in SPAWNING:
        execute_from_command_line(sys.argv)
        return
    configure_logging(settings.LOGGING_CONFIG, settings.LOGGING)
    import_module(f"gpuplatform.management.commands.{name}").Command().run_from_argv(sys.argv)


if __name__ == "__main__":
    if sys.argv[1:2] == ["install"]:  # before there are any settings
        from gpuplatform.bootstrap.production.install import main as install

        install(sys.argv[2:])
        sys.exit()
    if sys.argv[1:2] == ["join"]:
        from hostaccess.host_file import main

        main(sys.argv[2:], Path(__file__).resolve().parent / "host.env")
        sys.exit()
    if {*sys.argv[1:2]} & {*SPAWNING, "gateway"}:  # a reload before they handle it would end them
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gpuplatform.settings")
    try:
        read_settings()
        execute()
    except ImproperlyConfigured as error:
        sys.exit(f"The settings are not right: {error}\n{HINT}")
