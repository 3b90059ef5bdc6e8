"""`manage.py storageroots`: the directories that hold data folders."""

import argparse
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from accounts import audit
from accounts.models import Project, User
from folders.errors import FolderRejectedError
from folders.files.errors import FilesError
from folders.files.roots import NotEmptyError
from folders.models import HostRoot, StorageRoot
from folders.sharing import orphans
from folders.sharing.orphans import OrphanedFolder
from folders.storage import roots
from resources.amounts.units import size_text


class Command(BaseCommand):
    """Adds a root on this machine, writes its marker file, shows which host has which, or mends what has no row."""

    help = (
        "Show storage roots; add one, whose directory on this machine must be empty; write its marker file; or show, "
        "adopt or remove directories that no folder belongs to."
    )

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
        actions.add_parser("orphans", help="show directories of folders on this machine that no folder belongs to")
        adopt = actions.add_parser("adopt", help="make such a directory a folder")
        adopt.add_argument("id")
        holder = adopt.add_mutually_exclusive_group(required=True)
        holder.add_argument("--owner", help="e-mail address of the user whose folder it becomes")
        holder.add_argument("--project", help="name of the project whose folder it becomes")
        adopt.add_argument("--name", required=True, help="of the folder")
        remove = actions.add_parser("remove", help="remove such a directory with its files")
        remove.add_argument("id")
        actions.add_parser("list", help="show the roots and the hosts that have them; also without an action")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do the action. Raises CommandError."""
        try:
            match options["action"]:
                case "add":
                    self._add(options)
                case "mark":
                    self._mark(options["name"])
                case "orphans":
                    self._show_orphans()
                case "adopt":
                    self._adopt(_orphan(options["id"]), options)
                case "remove":
                    self._remove(_orphan(options["id"]))
                case _:
                    self._list()
        except ValidationError as error:
            raise CommandError("; ".join(error.messages)) from error
        except (NotEmptyError, FilesError, FolderRejectedError, OSError) as error:
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

    def _show_orphans(self) -> None:
        found = orphans.orphans()
        for each in found:
            self.stdout.write(f"{each.folder_id}  in {each.root.path}/{each.holder_number}")
        self.stdout.write(f"{len(found)} directories that no folder belongs to")

    def _adopt(self, orphan: OrphanedFolder, options: dict[str, Any]) -> None:
        holder: User | Project | None = (
            User.objects.filter(email__iexact=options["owner"]).first()
            if options["owner"]
            else Project.objects.filter(name=options["project"]).first()
        )
        if holder is None:
            raise CommandError(f"There is no {options['owner'] or options['project']}.")
        folder = orphans.adopt(orphan, holder, options["name"])
        audit.record(None, "adopt folder", folder, {})
        self.stdout.write(f"{folder.pk} is the folder {folder.name} of {holder} from now on")

    def _remove(self, orphan: OrphanedFolder) -> None:
        orphans.remove(orphan)
        audit.record(None, "remove orphaned folder", orphan.root, {"folder": (orphan.folder_id, None)})
        self.stdout.write(f"{orphan.folder_id} is being removed")

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


def _orphan(folder_id: str) -> OrphanedFolder:
    for each in orphans.orphans():
        if each.folder_id == folder_id:
            return each
    raise CommandError(f"There is no directory {folder_id} without a folder on a root of this machine.")
