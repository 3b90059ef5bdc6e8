"""Serializers of folders, storage roots, shares and the entries of folders. Sizes are in bytes."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from accounts.models import User
from accounts.serializers import StrictSerializer
from folders.files.entries import EntryKind, Order
from folders.files.errors import EntryNotFoundError
from folders.files.folder_files import FolderFiles
from folders.models import Folder, FolderShare, StorageRoot, Upload
from folders.names import MAX_NAME_LENGTH
from folders.quotas.rules import StorageUse
from folders.sharing.access import access
from restapi.fields import ShownSerializer

MAX_PATH_LENGTH = 4096
MAX_PAGE = 10**9
KINDS = [kind.value for kind in EntryKind]


class FolderSerializer(ShownSerializer[Folder]):
    """A data folder; `access` is what the caller may do with its files."""

    owner = serializers.EmailField(
        source="owner.email", read_only=True, default=None, allow_null=True, help_text="Null for one of a project"
    )
    project = serializers.CharField(
        source="project.name", read_only=True, default=None, allow_null=True, help_text="To which it belongs instead"
    )
    root = serializers.CharField(  # type: ignore[assignment]  # the metaclass collects it
        source="root.name", read_only=True
    )
    access = serializers.SerializerMethodField()
    is_automounted = serializers.BooleanField(read_only=True, help_text="Its owner's sessions mount it unasked")
    shares = serializers.IntegerField(source="share_count", read_only=True, help_text="Users with whom it is shared")

    class Meta:
        model = Folder
        fields = (
            *(
                "id",
                "name",
                "owner",
                "project",
                "root",
                "access",
                "is_automounted",
                "shares",
                "created_at",
                "trashed_at",
            ),
            *("used_bytes", "used_files", "measured_at"),
        )

    @extend_schema_field(serializers.ChoiceField(choices=["none", "read", "write"]))
    def get_access(self, folder: Folder) -> str:
        """Return the rights of the caller to the files."""
        return access(self.context["request"].user, folder).name.lower()


class FolderQuery(serializers.Serializer[Any]):
    """Which folders to list."""

    scope = serializers.ChoiceField(
        choices=["readable", "own", "shared", "all"],
        default="readable",
        help_text="readable: one's own and those shared with one; all: for superadmins, everybody's",
    )
    state = serializers.ChoiceField(choices=["live", "trash"], default="live")
    name = serializers.CharField(max_length=MAX_NAME_LENGTH, required=False, help_text="Part of the name")


class NewFolderSerializer(StrictSerializer):
    """A folder to create."""

    name = serializers.CharField(trim_whitespace=False, help_text=f"At most {MAX_NAME_LENGTH} characters")
    root = serializers.SlugField(  # type: ignore[assignment]  # the metaclass collects it
        required=False, help_text="Storage root; the default one when left out"
    )
    project = serializers.CharField(
        required=False, max_length=64, help_text="That it belongs to, of those that the caller manages"
    )


class RenamedFolderSerializer(StrictSerializer):
    """A folder's new name."""

    name = serializers.CharField(trim_whitespace=False)


class RestoredFolderSerializer(StrictSerializer):
    """How a folder comes out of the trash."""

    name = serializers.CharField(trim_whitespace=False, required=False, help_text="A new name if its own is taken")


class FolderShareSerializer(ShownSerializer[FolderShare]):
    """A user with whom a folder is shared."""

    user = serializers.EmailField(source="user.email", read_only=True)
    read_only = serializers.BooleanField(source="is_read_only")  # type: ignore[assignment]  # the metaclass collects it

    class Meta:
        model = FolderShare
        fields = ("id", "user", "read_only", "created_at")


class NewFolderShareSerializer(StrictSerializer):
    """A user with whom to share a folder."""

    user = serializers.EmailField(max_length=254, help_text="E-mail address")
    read_only = serializers.BooleanField(default=True)  # type: ignore[assignment]  # the metaclass collects it

    def validate_user(self, email: str) -> User:
        """Return the user with the address, in any case."""
        user = User.objects.filter(email__iexact=email).first()
        if user is None:
            raise serializers.ValidationError("Nobody has this e-mail address.")
        return user


class ChangedFolderShareSerializer(StrictSerializer):
    """Other rights for a share."""

    read_only = serializers.BooleanField()  # type: ignore[assignment]  # the metaclass collects it


class StorageUseSerializer(serializers.Serializer[StorageUse]):
    """What the caller's folders take on a root, trash and uploads under way included; null is unlimited."""

    used_bytes = serializers.IntegerField()
    used_files = serializers.IntegerField()
    max_bytes = serializers.IntegerField(allow_null=True)
    max_files = serializers.IntegerField(allow_null=True)


class StorageRootSerializer(ShownSerializer[StorageRoot]):
    """A storage root: where folders are kept."""

    hosts = serializers.SerializerMethodField()
    problem = serializers.SerializerMethodField()
    use = serializers.SerializerMethodField()

    class Meta:
        model = StorageRoot
        fields = ("name", "is_shared", "is_enabled", "is_default", "hosts", "problem", "use")

    def get_hosts(self, root: StorageRoot) -> list[str]:
        """Return the names of the hosts that have it: sessions with its folders run there."""
        names: list[str] = self.context["hosts"].get(root.pk, [])
        return names

    def get_problem(self, root: StorageRoot) -> str:
        """Return why its files cannot be reached by this API; empty if they can."""
        problem: str = self.context["problems"][root.pk]
        return problem

    @extend_schema_field(StorageUseSerializer)
    def get_use(self, root: StorageRoot) -> Any:
        """Return what the caller uses on it."""
        return StorageUseSerializer(self.context["uses"].get(root.pk) or self.context["no_use"]).data


class FolderEntrySerializer(serializers.Serializer[Any]):
    """An entry of a directory in a folder."""

    name = serializers.CharField(source="display_name")
    kind = serializers.ChoiceField(choices=KINDS)
    length_bytes = serializers.IntegerField(help_text="0 unless it is a file")
    modified_at = serializers.DateTimeField()
    etag = serializers.CharField()
    is_addressable = serializers.BooleanField(
        help_text="False: the name is not UTF-8 and shown with replacement characters; only sessions reach the entry"
    )


class FolderTrashItemSerializer(serializers.Serializer[Any]):
    """Something in the trash of a folder."""

    id = serializers.CharField()
    path = serializers.CharField(source="display_path", help_text="From which it was deleted")
    kind = serializers.ChoiceField(source="entry.kind", choices=KINDS)
    length_bytes = serializers.IntegerField(source="entry.length_bytes", help_text="0 unless it is a file")
    deleted_at = serializers.DateTimeField()


class FolderPageSerializer(serializers.Serializer[Any]):
    """A page of a list, as all lists of this API have it."""

    count = serializers.IntegerField()
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)


class FolderEntriesPageSerializer(FolderPageSerializer):
    """A page of the entries of a directory."""

    is_complete = serializers.BooleanField(help_text="False: the directory has more entries than are ever listed")
    results = FolderEntrySerializer(many=True)


class FolderTrashPageSerializer(FolderPageSerializer):
    """A page of the trash of a folder."""

    results = FolderTrashItemSerializer(many=True)


class PathField(serializers.CharField):
    """A path in a folder, as it is: spaces and line breaks belong to names."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"max_length": MAX_PATH_LENGTH, "trim_whitespace": False, **options})


class FolderPathQuery(serializers.Serializer[Any]):
    """An entry of a folder."""

    path = PathField(help_text="Relative to the folder, with / between names")


class DownloadQuery(FolderPathQuery):
    """A file to download."""

    inline = serializers.BooleanField(default=False, help_text="Show a picture in the browser instead of saving it")


class ZipQuery(serializers.Serializer[Any]):
    """What an archive holds."""

    path = serializers.ListField(
        child=PathField(), default=list, help_text="May be repeated; without it, the whole folder"
    )


class FolderPageQuery(serializers.Serializer[Any]):
    """Which page of a list, as all lists of this API have them."""

    page = serializers.IntegerField(min_value=1, max_value=MAX_PAGE, default=1)
    page_size = serializers.IntegerField(min_value=1, max_value=200, default=50)


class FolderEntriesQuery(FolderPageQuery):
    """Which entries of a directory to list."""

    path = PathField(default="", allow_blank=True, help_text="The directory; empty is the folder itself")
    order = serializers.ChoiceField(
        choices=[f"{sign}{order.value}" for order in Order for sign in ("", "-")],
        default=Order.NAME.value,
        help_text="Directories come first; - is descending",
    )


class NewDirectorySerializer(StrictSerializer):
    """A directory to make."""

    path = PathField()
    parents = serializers.BooleanField(default=False, help_text="Make those above it too; it may be there already")


class FolderMoveSerializer(StrictSerializer):
    """An entry to move or rename within the folder."""

    path = PathField()
    new_path = PathField(help_text="The whole new path; its directory must exist")
    replace = serializers.BooleanField(default=False, help_text="Replace a file that has the new path")


class FolderRestoreSerializer(StrictSerializer):
    """How an item comes out of the trash of a folder."""

    path = PathField(required=False, help_text="Another path than the one from which it was deleted")


class FolderTextSerializer(serializers.Serializer[Any]):
    """The content of a text file."""

    text = serializers.CharField(trim_whitespace=False, allow_blank=True)
    etag = serializers.CharField(read_only=True, help_text="For If-Match of the next save; also in the header ETag")


class NewTextSerializer(StrictSerializer):
    """The new content of a text file."""

    text = serializers.CharField(trim_whitespace=False, allow_blank=True)


class UploadSerializer(ShownSerializer[Upload]):
    """An upload under way. The context has `files`, the folder's FolderFiles."""

    received = serializers.SerializerMethodField(help_text="Bytes that are there; fewer than the length")

    class Meta:
        model = Upload
        fields = ("id", "path", "length", "received", "created_at", "expires_at")

    def get_received(self, upload: Upload) -> int:
        """Return how much of the file is there; 0 where it is gone."""
        files: FolderFiles = self.context["files"]
        try:
            return files.staging.length_bytes(str(upload.pk))
        except EntryNotFoundError:
            return 0
