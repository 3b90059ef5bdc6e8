"""Storage roots, data folders, who may use them, and uploads under way."""

import base64
import secrets
import uuid
from datetime import timedelta
from typing import ClassVar, Final

from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Exists, OuterRef, Q, Subquery
from django.utils import timezone

from accounts.models import Membership, Project, ProjectRole, User
from folders.names import AUTOMOUNT_PREFIX, MAX_NAME_LENGTH, NAME
from resources.models import Host


def new_folder_id() -> str:
    """Return 80 random bits as 16 lower-case base32 characters: the name of the folder's directory on its root."""
    return base64.b32encode(secrets.token_bytes(10)).decode().lower()


PROJECT_NUMBERS: Final = 2**20  # from which the directories of projects are numbered; those of users lie below
FOLDER_ID: Final = "[a-z2-7]{16}"  # what `new_folder_id` makes, as a regular expression


class StorageRoot(models.Model):
    """A directory that holds data folders: of one host, or of a shared file system that several hosts mount.

    Its path is the same on every host. A marker file with `key` in it tells the root from an empty mount point.
    """

    name = models.SlugField(max_length=64, unique=True)
    path = models.CharField(max_length=255, unique=True, validators=[RegexValidator(r"^/[!-~]*[!-.0-~]$")])
    key = models.UUIDField(default=uuid.uuid4, editable=False, unique=True, help_text="In its marker file")
    is_shared = models.BooleanField(
        "shared", default=False, help_text="A file system that several hosts mount, such as NFS; else of one host"
    )
    is_enabled = models.BooleanField("enabled", default=True, help_text="New folders may be created on it")
    is_default = models.BooleanField("default", default=False, help_text="Offered first for new folders")

    class Meta:
        ordering = ("-is_default", "name")
        constraints = (
            models.UniqueConstraint(fields=("is_default",), condition=Q(is_default=True), name="root_one_default"),
        )

    def __str__(self) -> str:
        return self.name


class QuotaSupport(models.TextChoices):
    """How a host holds users to their storage quota on a root."""

    ENFORCED = "enforced", "enforced by the file system"
    WATCHED = "watched", "measured; what exceeds it becomes read-only"


class HostRoot(models.Model):
    """What a host last found at the path of a storage root."""

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="storage_roots")
    root = models.ForeignKey(StorageRoot, on_delete=models.CASCADE, related_name="on_hosts")
    is_present = models.BooleanField("present", default=False)
    problem = models.CharField(max_length=300, blank=True, help_text="Why sessions on this host cannot use it")
    quota_support = models.CharField(max_length=8, choices=QuotaSupport.choices, default=QuotaSupport.WATCHED.value)
    total_bytes = models.PositiveBigIntegerField(null=True, blank=True)
    free_bytes = models.PositiveBigIntegerField(null=True, blank=True)
    checked_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("root", "host")
        constraints = (models.UniqueConstraint(fields=("host", "root"), name="host_root_unique"),)

    def __str__(self) -> str:
        return f"{self.root} on {self.host}"


class FolderQuerySet(models.QuerySet["Folder"]):
    """Questions about folders."""

    def live(self) -> "FolderQuerySet":
        """Return the folders that are not in the trash."""
        return self.filter(trashed_at=None)

    def trashed(self) -> "FolderQuerySet":
        """Return the folders that are in the trash and can be restored."""
        return self.filter(trashed_at__isnull=False, deleting_at=None)

    def deleting(self) -> "FolderQuerySet":
        """Return the folders whose files are being removed, by a host that has their root."""
        return self.filter(deleting_at__isnull=False)

    def readable_by(self, user: User) -> "FolderQuerySet":
        """Return the folders whose files `user` may read: their own, those of their projects, and those shared."""
        shared = FolderShare.objects.filter(folder=OuterRef("pk"), user=user)
        joined = Membership.objects.filter(project=OuterRef("project"), user=user)
        theirs = Q(Exists(shared)) | Q(Exists(joined))
        return self.filter(self.managed_by(user) | Q(theirs, trashed_at=None), deleting_at=None)

    @staticmethod
    def managed_by(user: User) -> Q:
        """Return the condition that `user` owns a folder, or manages the project that does."""
        manages = Membership.objects.filter(project=OuterRef("project"), user=user, role=ProjectRole.MANAGER.value)
        return Q(owner=user) | Q(Exists(manages))

    def with_rights_of(self, user: User) -> "FolderQuerySet":
        """Return the folders with `shared_read_only`: what a share of `user` says, None without one.

        And with `project_role`: that of `user` in the project that owns the folder.
        """
        mine = FolderShare.objects.filter(folder=OuterRef("pk"), user=user).values("is_read_only")[:1]
        roles = Membership.objects.filter(project=OuterRef("project"), user=user).values("role")[:1]
        return self.annotate(shared_read_only=Subquery(mine), project_role=Subquery(roles))

    def visible_to(self, user: User) -> "FolderQuerySet":
        """Return the folders that `user` may know of: for a superadmin all, else those whose files they may read."""
        return self.filter(deleting_at=None) if user.is_superuser else self.readable_by(user)


class Folder(models.Model):
    """A data folder of a user or of a project: a directory that outlives sessions and is mounted into them."""

    id = models.CharField(primary_key=True, max_length=16, default=new_folder_id, editable=False)
    owner = models.ForeignKey(User, on_delete=models.PROTECT, null=True, blank=True, related_name="folders")
    project = models.ForeignKey(
        Project,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="folders",
        help_text="Whose members use it and whose managers manage it; in place of an owner",
    )
    name = models.CharField(max_length=MAX_NAME_LENGTH, validators=[RegexValidator(rf"^{NAME.pattern}\Z")])
    root = models.ForeignKey(StorageRoot, on_delete=models.PROTECT, related_name="folders")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    trashed_at = models.DateTimeField(null=True, blank=True, editable=False, help_text="Since when it is in the trash")
    deleting_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="Since when its files are being removed for good"
    )
    used_bytes = models.PositiveBigIntegerField(default=0, editable=False, help_text="As last measured")
    used_files = models.PositiveBigIntegerField(default=0, editable=False, help_text="As last measured")
    measured_at = models.DateTimeField(null=True, blank=True, editable=False)
    measure_due_at = models.DateTimeField(default=timezone.now, editable=False, db_index=True)
    measure_pause = models.DurationField(
        default=timedelta, editable=False, help_text="Between two measurements, by how long the last one took"
    )
    measuring_since = models.DateTimeField(null=True, blank=True, editable=False, help_text="While a host measures it")

    objects: ClassVar[FolderQuerySet] = FolderQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering = ("name", "id")
        constraints = (
            models.UniqueConstraint(
                fields=("owner", "name"), condition=Q(trashed_at=None), name="folder_live_name_unique"
            ),
            models.UniqueConstraint(
                fields=("project", "name"), condition=Q(trashed_at=None), name="folder_live_name_unique_in_project"
            ),
            models.CheckConstraint(
                condition=Q(owner=None, project__isnull=False) | Q(owner__isnull=False, project=None),
                name="folder_is_of_a_user_or_a_project",
            ),
            models.CheckConstraint(
                condition=Q(deleting_at=None) | Q(trashed_at__isnull=False), name="folder_is_trashed_before_deleted"
            ),
        )

    def __str__(self) -> str:
        return self.name

    @property
    def is_automounted(self) -> bool:
        """True for a folder that every session of its owner mounts; those of projects are mounted when asked for."""
        return self.owner_id is not None and self.name.startswith(AUTOMOUNT_PREFIX)

    @property
    def holder(self) -> User | Project:
        """The user or the project that it belongs to, whose quota counts."""
        holder = self.owner or self.project
        assert holder is not None  # the database sees to it
        return holder

    @property
    def holder_number(self) -> int:
        """The name of the directory on a root in which the folders of its user or project lie. No query."""
        if self.project_id is not None:
            return PROJECT_NUMBERS + self.project_id
        assert self.owner_id is not None  # the database sees to it
        return _number_of_user(self.owner_id)

    @property
    def holder_name(self) -> str:
        """What tells its user or project from others in texts and paths: an address, or a project's name."""
        return self.owner.email if self.owner else str(self.project)


def number_of(holder: User | Project) -> int:
    """Return the number of a user's or project's directory on every root. Raises OverflowError for a user beyond it."""
    if isinstance(holder, Project):
        return PROJECT_NUMBERS + holder.pk
    return _number_of_user(holder.pk)


def _number_of_user(pk: int) -> int:
    if pk >= PROJECT_NUMBERS:
        raise OverflowError(f"user {pk}: numbers from {PROJECT_NUMBERS} on are those of projects")
    return pk


class FolderShare(models.Model):
    """The right of another user to a folder."""

    folder = models.ForeignKey(Folder, on_delete=models.CASCADE, related_name="shares")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="shared_folders")
    is_read_only = models.BooleanField("read only", default=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ("folder", "user")
        constraints = (models.UniqueConstraint(fields=("folder", "user"), name="folder_share_unique"),)

    def __str__(self) -> str:
        return f"{self.folder} for {self.user}"


class OnConflict(models.TextChoices):
    """What becomes of an upload whose path is taken."""

    REFUSE = "refuse", "refuse the upload"
    REPLACE = "replace", "replace the file"
    KEEP_BOTH = "keep-both", "give the upload another name"


class Upload(models.Model):
    """A file on its way into a folder; its bytes so far lie in the folder's directory for uploads."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    folder = models.ForeignKey(Folder, on_delete=models.CASCADE, related_name="uploads")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    path = models.TextField(help_text="In the folder, where the file appears once it is whole")
    length = models.PositiveBigIntegerField("length (bytes)")
    on_conflict = models.CharField(max_length=9, choices=OnConflict.choices, default=OnConflict.REFUSE.value)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField()
    finished_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="Kept until it expires, for clients that missed the answer"
    )

    class Meta:
        ordering = ("created_at",)

    def __str__(self) -> str:
        return f"{self.path} to {self.folder_id}"
