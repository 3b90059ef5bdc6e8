"""`manage.py storageroots`: the directories that hold data folders."""

import argparse
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from accounts import audit
from folders.files.roots import NotEmptyError
from folders.models import HostRoot, StorageRoot
from folders.storage import roots
from resources.amounts.units import size_text


class Command(BaseCommand):
    """Adds a root on this machine, writes its marker file, or shows which host has which root."""

    help = "Show storage roots; add one, whose directory on this machine must be empty; or write its marker file."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the actions."""
        actions = parser.add_subparsers(dest="action")
        add = actions.add_parser("add", help="make an empty directory of this machine a storage root")
        add.add_argument("name")
        add.add_argument("path", type=Path)
        add.add_argument("--shared", action="store_true", help="a file system that several hosts mount at this path")
        add.add_argument("--default", action="store_true", help="offer it first for new folders")
        mark = actions.add_parser("mark", help="write the marker file of a root into its empty directory")
        mark.add_argument("name")
        actions.add_parser("list", help="show the roots and the hosts that have them; also without an action")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do the action. Raises CommandError."""
        try:
            if options["action"] == "add":
                self._add(options)
            elif options["action"] == "mark":
                self._mark(options["name"])
            else:
                self._list()
        except ValidationError as error:
            raise CommandError("; ".join(error.messages)) from error
        except (NotEmptyError, OSError) as error:
            raise CommandError(str(error)) from error

    def _add(self, options: dict[str, Any]) -> None:
        root = StorageRoot(name=options["name"], path=str(options["path"]), is_shared=options["shared"])
        former = StorageRoot.objects.filter(is_default=True) if options["default"] else StorageRoot.objects.none()
        with audit.act(None, "add storage root", *former) as made:
            former.update(is_default=False)
            root.is_default = options["default"]
            root.full_clean()
            root.save()
            made.append(root)
            roots.mark(root)
        self.stdout.write(f"{root.name} at {root.path} holds data folders from now on")

    def _mark(self, name: str) -> None:
        root = StorageRoot.objects.filter(name=name).first()
        if root is None:
            raise CommandError(f"There is no storage root {name}.")
        roots.mark(root)
        audit.record(None, "mark storage root", root, {})
        self.stdout.write(f"{root.path} is marked as the storage root {root.name}")

    def _list(self) -> None:
        rows = HostRoot.objects.select_related("host").order_by("host__name")
        for root in StorageRoot.objects.all():
            marks = {"shared": root.is_shared, "default": root.is_default, "disabled": not root.is_enabled}
            notes = ", ".join(mark for mark, is_set in marks.items() if is_set)
            self.stdout.write(f"{root.name}  {root.path}  {notes}".rstrip())
            for row in rows.filter(root=root):
                self.stdout.write(f"  {row.host.name}: {_state(row)}")


def _state(row: HostRoot) -> str:
    if not row.is_present:
        return row.problem
    space = f"{size_text(row.free_bytes or 0)} free of {size_text(row.total_bytes or 0)}"
    return f"{space}; quota {row.get_quota_support_display()}"
