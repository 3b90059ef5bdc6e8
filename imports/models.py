"""Imports, and the credentials by which private sources are reached."""

from typing import ClassVar, Final

from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy

from accounts.models import User
from folders.models import Folder
from imports.addresses import MAX_ADDRESS_LENGTH, MAX_REF_LENGTH, SourceKind
from sessions.models import Session, new_session_id

NAME_LENGTH: Final = 64
PROBLEM_LENGTH: Final = 500
PATH_LENGTH: Final = 500
KIND_CHOICES: Final = [(kind.value, kind.value) for kind in SourceKind]


class ImportTarget(models.TextChoices):
    """Where what is fetched goes."""

    LOOK = "LOOK", gettext_lazy("nowhere, a look")
    FOLDER = "FOLDER", gettext_lazy("a folder")
    SESSION = "SESSION", gettext_lazy("a session")


class ImportState(models.TextChoices):
    """How far an import is; `imports.progress` moves it."""

    WAITING = "WAITING", gettext_lazy("waits")
    FETCHING = "FETCHING", gettext_lazy("fetches")
    DONE = "DONE", gettext_lazy("done")
    FAILED = "FAILED", gettext_lazy("failed")
    CANCELLED = "CANCELLED", gettext_lazy("cancelled")


LIVE_IMPORTS: Final = (ImportState.WAITING.value, ImportState.FETCHING.value)


class CredentialKind(models.TextChoices):
    """What opens a private source."""

    TOKEN = "token", gettext_lazy("access token")
    SSH_KEY = "ssh_key", gettext_lazy("SSH key")


class ImportCredential(models.Model):
    """A token or SSH key of a user for one host of repositories. Its secret is written, and never shown again."""

    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="import_credentials", editable=False)
    name = models.CharField(max_length=NAME_LENGTH)
    host = models.CharField(max_length=253, help_text="To which alone it is sent, such as github.com")
    kind = models.CharField(max_length=8, choices=CredentialKind.choices)
    username = models.CharField(max_length=NAME_LENGTH, blank=True, help_text="That goes with a token, where one does")
    public_key = models.TextField(blank=True, editable=False, help_text="Of an SSH key, to be added at the host")
    encrypted_secret = models.BinaryField(editable=False)
    known_hosts = models.TextField(blank=True, editable=False, help_text="Keys of the host, trusted at first use")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering = ("name", "id")
        constraints = (models.UniqueConstraint(fields=("owner", "name"), name="import_credential_name_unique"),)

    def __str__(self) -> str:
        return f"{self.name} ({self.host})"

    @property
    def is_key(self) -> bool:
        """Whether it is an SSH key rather than a token."""
        return self.kind == CredentialKind.SSH_KEY


class ImportQuerySet(models.QuerySet["Import"]):
    """Questions about imports."""

    def visible_to(self, user: User) -> "ImportQuerySet":
        """Return those of the user; for a superadmin all."""
        return self if user.is_superuser else self.filter(owner=user)

    def live(self) -> "ImportQuerySet":
        """Return those that wait or fetch."""
        return self.filter(state__in=LIVE_IMPORTS)


class Import(models.Model):
    """What is fetched from an address, in a container of its owner: first a look, then into a folder or a session."""

    id = models.CharField(primary_key=True, max_length=16, default=new_session_id, editable=False)
    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="imports", editable=False)
    address = models.CharField(max_length=MAX_ADDRESS_LENGTH, editable=False, help_text="As it was pasted")
    kind = models.CharField(max_length=12, choices=KIND_CHOICES, editable=False)
    url = models.CharField("URL", max_length=MAX_ADDRESS_LENGTH, editable=False, help_text="What is fetched")
    ref = models.CharField(max_length=MAX_REF_LENGTH, blank=True, editable=False, help_text="Branch, tag or commit")
    path = models.CharField(max_length=PATH_LENGTH, blank=True, editable=False, help_text="What is opened in it")
    credential = models.ForeignKey(
        ImportCredential, on_delete=models.SET_NULL, null=True, blank=True, related_name="imports", editable=False
    )
    target = models.CharField(max_length=8, choices=ImportTarget.choices, editable=False)
    folder = models.ForeignKey(
        Folder, on_delete=models.SET_NULL, null=True, blank=True, related_name="imports", editable=False
    )
    directory = models.CharField(
        max_length=PATH_LENGTH, blank=True, editable=False, help_text="Name of the tree in the folder or the home"
    )
    mount_path = models.CharField(
        max_length=PATH_LENGTH, blank=True, editable=False, help_text="Where the folder is in its session"
    )
    session = models.ForeignKey(
        Session,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="imports",
        editable=False,
        help_text="In whose container it is fetched",
    )
    origin = models.ForeignKey(
        "self",
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        editable=False,
        help_text="Whose tree a session was launched with: nothing is fetched again",
    )
    whole_history = models.BooleanField(default=False, editable=False, help_text="And not the last commit alone")
    installs = models.BooleanField(default=False, editable=False, help_text="The packages that it names, too")
    state = models.CharField(
        max_length=9, choices=ImportState.choices, default=ImportState.WAITING.value, editable=False
    )
    progress = models.CharField(max_length=200, blank=True, editable=False, help_text="In words")
    fetched_bytes = models.PositiveBigIntegerField(default=0, editable=False)
    found = models.JSONField(default=dict, blank=True, editable=False, help_text="What was found")
    problem = models.CharField(max_length=PROBLEM_LENGTH, blank=True, editable=False, help_text="Why it failed")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    begun_at = models.DateTimeField(null=True, blank=True, editable=False, help_text="When its program was started")
    begun_attempt = models.PositiveIntegerField(
        default=0, editable=False, help_text="The attempt of its session in which that was"
    )
    ended_at = models.DateTimeField(null=True, blank=True, editable=False)

    objects: ClassVar[ImportQuerySet] = ImportQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering = ("-created_at", "-id")
        indexes = (
            models.Index(fields=("owner", "-created_at"), name="import_of_owner"),
            models.Index(fields=("created_at",), condition=Q(ended_at=None), name="import_live"),
            models.Index(fields=("ended_at",), name="import_age"),
        )
        constraints = (
            models.CheckConstraint(
                condition=Q(state__in=LIVE_IMPORTS, ended_at=None)
                | (~Q(state__in=LIVE_IMPORTS) & Q(ended_at__isnull=False)),
                name="import_ends_once",
            ),
        )

    def __str__(self) -> str:
        return f"{self.url} ({self.pk})"

    @property
    def is_live(self) -> bool:
        """Whether it waits or fetches."""
        return self.state in LIVE_IMPORTS

    @property
    def tree(self) -> str:
        """Where what was fetched is in a session, as an absolute path."""
        return "/".join(filter(None, (self.mount_path, self.directory)))
