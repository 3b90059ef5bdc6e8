"""Administration of storage roots and data folders; files are not shown, nor is anything written but by services."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from django.contrib import admin, messages
from django.db.models import Count, QuerySet, Sum
from django.http import HttpRequest
from django.utils.translation import gettext, gettext_lazy, ngettext_lazy

from accounts.admin import ReadOnlyMixin, ShownInline
from accounts.confirmation import confirmed
from folders.errors import FolderError
from folders.files.roots import NotEmptyError
from folders.models import Folder, FolderShare, HostRoot, StorageRoot
from folders.sharing import folders as services
from folders.storage import paths as storage
from folders.storage import roots
from resources.amounts.admin_columns import memory_column, value_column
from resources.amounts.units import size_text
from translation.english import from_english

USED: Final = memory_column("used_bytes", "used")  # as last measured


def _holders(folders: Sequence[Folder]) -> list[str]:
    return [folder.holder_name for folder in folders]


class OnHostsInline(ShownInline):
    """What the hosts found at the path of a root."""

    model = HostRoot
    fields = readonly_fields = ("host", "is_present", "problem", "quota_support", "free", "checked_at")
    related = ("host",)

    @admin.display(description="free")
    def free(self, row: HostRoot) -> str:
        """Return the free space of the root's file system."""
        if row.free_bytes is None:
            return "-"
        sizes = {"free": size_text(row.free_bytes), "total": size_text(row.total_bytes or 0)}
        return gettext("%(free)s of %(total)s") % sizes


@admin.register(StorageRoot)
class StorageRootAdmin(admin.ModelAdmin[StorageRoot]):
    """Directories that hold data folders. A root whose folders exist stays where it is."""

    list_display = (
        *("name", "path", "is_shared", "is_enabled", "is_default", value_column("count_of_folders", "folders")),
        memory_column("bytes_of_folders", "used by folders"),
    )
    list_filter = ("is_shared", "is_enabled")
    search_fields = ("name", "path")
    fields = ("name", "path", "is_shared", "is_enabled", "is_default", "key")
    inlines = (OnHostsInline,)
    actions = ("make_default", "write_marker")

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        """Show the roots, and which of them a host lacks."""
        if request.method == "GET":
            for text in roots.warnings():
                self.message_user(request, from_english(text), messages.WARNING)
        return super().changelist_view(request, extra_context)

    def get_queryset(self, request: HttpRequest) -> QuerySet[StorageRoot]:
        """Return the roots with the number and size of their folders."""
        totals = {"count_of_folders": Count("folders"), "bytes_of_folders": Sum("folders__used_bytes", default=0)}
        return super().get_queryset(request).annotate(**totals)

    def get_readonly_fields(self, request: HttpRequest, obj: StorageRoot | None = None) -> tuple[str, ...]:
        """Return the fields that cannot be changed: the path too, once there are folders."""
        has_folders = obj is not None and obj.folders.exists()
        return ("is_default", "key", "path", "is_shared") if has_folders else ("is_default", "key")

    @admin.action(description="Offer the selected root first for new folders", permissions=["change"])
    def make_default(self, request: HttpRequest, selected: QuerySet[StorageRoot]) -> None:
        """Make one root the default."""
        if len(selected) != 1:
            self.message_user(request, gettext("Select one storage root."), messages.WARNING)
            return
        storage.make_default(selected[0])
        text = gettext("New folders are created on %(root)s.") % {"root": selected[0]}
        self.message_user(request, text, messages.SUCCESS)

    @admin.action(description="Write the marker file on the web server's machine", permissions=["change"])
    def write_marker(self, request: HttpRequest, selected: QuerySet[StorageRoot]) -> None:
        """Mark the roots' directories on this machine, which must be there and be empty."""
        for root in selected:
            try:
                roots.mark(root)
            except (NotEmptyError, OSError) as error:
                self.message_user(request, f"{root}: {from_english(str(error))}", messages.ERROR)
            else:
                text = gettext("%(path)s is marked as %(root)s.") % {"path": root.path, "root": root}
                self.message_user(request, text, messages.SUCCESS)


class FolderShareInline(ShownInline):
    """With whom a folder is shared."""

    model = FolderShare
    fields = readonly_fields = ("user", "is_read_only", "created_at")


class FolderStateFilter(admin.SimpleListFilter):
    """Folders by whether they are in the trash."""

    title = gettext_lazy("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the choices."""
        return [
            ("live", gettext("in use")),
            ("trash", gettext("in the trash")),
            ("deleting", gettext("being deleted")),
        ]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        """Return the chosen folders."""
        chosen = {"live": queryset.live, "trash": queryset.trashed, "deleting": queryset.deleting}.get(
            self.value() or ""
        )
        return chosen() if chosen else queryset


@admin.register(Folder)
class FolderAdmin(ReadOnlyMixin, admin.ModelAdmin[Folder]):
    """All data folders; actions trash, restore and delete them, files before the row. Nobody sees files here."""

    list_display = (
        *("name", "id", "owner", "project", "root", USED, "used_files", "measured_at", "created_at", "trashed_at"),
    )
    list_filter = (FolderStateFilter, "root")
    list_select_related = ("owner", "project", "root")
    search_fields = ("id", "name", "owner__email", "project__name")
    fields = readonly_fields = (
        *("id", "name", "owner", "project", "root", USED, "used_files", "measured_at"),
        *("created_at", "trashed_at", "deleting_at"),
    )
    inlines = (FolderShareInline,)
    actions = ("move_to_trash", "restore", "delete_forever")

    @admin.action(description="Move selected folders to the trash", permissions=["view"])
    @confirmed(gettext_lazy("No session can mount them until they are restored."), _holders)
    def move_to_trash(self, request: HttpRequest, folders: QuerySet[Folder]) -> None:
        """Move the folders to the trash."""
        done = ngettext_lazy("%(count)s folder moved to the trash.", "%(count)s folders moved to the trash.", "count")
        self._each(request, folders, services.trash, done)

    @admin.action(description="Restore selected folders from the trash", permissions=["view"])
    def restore(self, request: HttpRequest, folders: QuerySet[Folder]) -> None:
        """Take the folders out of the trash."""
        done = ngettext_lazy("%(count)s folder restored.", "%(count)s folders restored.", "count")
        self._each(request, folders, services.restore, done)

    @admin.action(description="Delete selected folders, which are in the trash, for ever", permissions=["view"])
    @confirmed(gettext_lazy("All their files are lost. This cannot be undone."), _holders)
    def delete_forever(self, request: HttpRequest, folders: QuerySet[Folder]) -> None:
        """Delete the folders with all their files."""
        done = ngettext_lazy("%(count)s folder deleted.", "%(count)s folders deleted.", "count")
        self._each(request, folders, services.delete_forever, done)

    def _each(
        self, request: HttpRequest, folders: QuerySet[Folder], operation: Callable[..., object], done: Any
    ) -> None:
        """Call the operation with each folder, and say what came of it."""
        count = 0
        for folder in folders.select_related("owner__policy", "project__policy", "root"):
            try:
                operation(folder, actor=request.user)
            except FolderError as error:
                names = {"folder": folder, "owner": folder.holder_name, "problem": from_english(str(error))}
                self.message_user(request, gettext("%(folder)s of %(owner)s: %(problem)s") % names, messages.ERROR)
            else:
                count += 1
        if count:
            self.message_user(request, done % {"count": count}, messages.SUCCESS)
