"""`manage.py import_config`: show what a configuration file would change, and with --apply import it."""

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from operations.configuration import services as configuration
from operations.configuration.services import ConfigurationError, RowChange


class Command(BaseCommand):
    """Imports all of a file or nothing; a second time changes nothing."""

    help = "Show what a file of `export_config` would change; --apply imports it, all or nothing. Rows not in it stay."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", help="`-` for standard input")
        parser.add_argument("--apply", action="store_true", help="import it")

    def handle(self, *args: Any, file: str, apply: bool, **options: Any) -> None:
        """Show or import; raise CommandError with every problem."""
        try:
            text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
            changes = configuration.carry_out(text, actor=None) if apply else configuration.preview(text)
        except ConfigurationError as error:
            problems = [f"{place}: {text}" for place, text in error.problems.items()]
            raise CommandError("\n".join(["Nothing was imported.", *problems])) from None
        except (OSError, UnicodeError) as error:
            raise CommandError(str(error)) from None
        for change in changes:
            for line in _lines(change):
                self.stdout.write(line)
        done = "imported" if apply else "not imported; add --apply to import them"
        self.stdout.write(f"Rows that differ: {len(changes)}, {done}." if changes else "Nothing differs.")


def _lines(change: RowChange) -> list[str]:
    sign = "+" if change.is_new else "~"
    return [
        f"{sign} {change.section} {change.key}",
        *(
            f"    {name}: {after if change.is_new else f'{before} -> {after}'}"
            for name, before, after in change.texts()
        ),
    ]
