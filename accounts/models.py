"""Users, their resource policies and projects, API tokens, SSH keys and login sessions."""

import uuid
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar, Final

from django.contrib.auth.models import AbstractUser, BaseUserManager
from django.contrib.sessions.models import Session
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models.functions import Lower
from django.utils import timezone
from django.utils.translation import gettext_lazy
from knox.models import get_digest_token
from knox.settings import CONSTANTS

from accounts.audit_entry import AuditEntry as AuditEntry
from accounts.invitation_models import AccountInvitation as AccountInvitation  # so that Django finds it
from accounts.limits import PolicyLimits
from accounts.user_agents import AGENT_LENGTH, browser_of, system_of

TOKEN_LIFETIME: Final = timedelta(days=30)
DEFAULT_POLICY = "default"
PROJECT_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z"
DEFAULT_WEIGHT: Final = 100
DEFAULT_PARKED_TIME: Final = timedelta(days=14)
WEIGHT_VALIDATORS: Final = [MinValueValidator(1), MaxValueValidator(10_000)]
DEFAULT_LIMITS: Final = {
    "cpu": 8,
    "memory": 32 * 2**30,
    "fgpu": 4000,
    "max_sessions": 5,
    "max_pending": 20,
    "max_lifetime": timedelta(days=7),  # reservations and estimates need ends
    "max_extension": timedelta(hours=8),
    "disk_bytes": 50 * 2**30,
    "storage_bytes": 50 * 2**30,
    "storage_files": 1_000_000,
}


class ResourcePolicy(models.Model):
    """Limits for the sessions of a user, or of a project's members, together. An empty limit means unlimited.

    A session of a project is bound by two policies, its owner's and the project's: see `accounts.policies`.
    """

    name = models.CharField(max_length=64, unique=True)
    cpu = models.PositiveIntegerField("CPU cores", null=True, blank=True)
    memory = models.PositiveBigIntegerField("memory (bytes)", null=True, blank=True)
    fgpu = models.PositiveIntegerField("milli-fGPU", null=True, blank=True, help_text="1000 is 1 fGPU")
    max_sessions = models.PositiveIntegerField("concurrent sessions", null=True, blank=True)
    max_pending = models.PositiveIntegerField("pending sessions", null=True, blank=True)
    max_per_launch = models.PositiveIntegerField(
        "sessions per launch", null=True, blank=True, help_text="Started by one click or request"
    )
    max_priority = models.SmallIntegerField(
        "highest priority",
        null=True,
        blank=True,
        validators=[MinValueValidator(0), MaxValueValidator(100)],
        help_text="Of a session, from 0 to 100; those that name none have 10, or this where it is lower",
    )
    max_lifetime = models.DurationField(
        null=True,
        blank=True,
        validators=[MinValueValidator(limit_value=timedelta(minutes=1))],
        help_text="A session ends this long after it started running",
    )
    max_extension = models.DurationField(
        default=timedelta(0),
        validators=[MinValueValidator(limit_value=timedelta(0))],
        help_text="Owners may let a running session go on for this much longer than its limits, in all; 0: not at all",
    )
    max_parked = models.PositiveIntegerField(
        "parked sessions", null=True, blank=True, default=3, help_text="At once; 0: sessions cannot be parked"
    )
    max_parked_time = models.DurationField(
        null=True,
        blank=True,
        default=DEFAULT_PARKED_TIME,
        validators=[MinValueValidator(limit_value=timedelta(minutes=1))],
        help_text="A parked session ends, and its files are deleted, this long after it was parked",
    )
    share_weight = models.PositiveSmallIntegerField(
        default=DEFAULT_WEIGHT,
        validators=WEIGHT_VALIDATORS,
        help_text="In resource groups of fair order: 200 is due twice as much as 100",
    )
    preemptible_only = models.BooleanField(
        "preemptible sessions only",
        default=False,
        help_text="Every session may be ended for others that wait, after a warning",
    )
    allow_sudo = models.BooleanField(default=False, help_text="Sessions may gain root inside their container")
    allow_public_apps = models.BooleanField(
        default=True, help_text="Apps of sessions may be opened to people without an account"
    )
    disk_bytes = models.PositiveBigIntegerField(
        "disk of a session (bytes)",
        null=True,
        blank=True,
        help_text="Written outside of data folders; beyond it writes fail, or the session ends",
    )
    max_folders = models.PositiveIntegerField("data folders", null=True, blank=True, default=20)
    storage_bytes = models.PositiveBigIntegerField(
        "storage (bytes)", null=True, blank=True, help_text="Of a user's data folders together on each storage root"
    )
    storage_files = models.PositiveBigIntegerField(
        "storage (files)", null=True, blank=True, help_text="Of a user's data folders together on each storage root"
    )
    max_private_images = models.PositiveIntegerField("private images", null=True, blank=True, default=5)
    allow_conversion = models.BooleanField(
        default=False, help_text="Users may turn their own sessions into private images; superadmins always may"
    )
    allow_unlisted_images = models.BooleanField(
        default=False, help_text="Users may launch any image that their hosts can pull, by its full name"
    )

    class Meta:
        ordering = ("name",)
        verbose_name_plural = "resource policies"

    def __str__(self) -> str:
        return self.name

    def limits(self) -> PolicyLimits:
        """Return the limits as a value for `accounts.limits`."""
        return PolicyLimits(
            cpu=self.cpu, memory=self.memory, fgpu=self.fgpu, sessions=self.max_sessions, pending=self.max_pending
        )

    @classmethod
    def default(cls) -> "ResourcePolicy":
        """Return the default policy of new users, created on first use; one or two queries."""
        policy, _ = cls.objects.get_or_create(
            name=DEFAULT_POLICY,
            defaults=DEFAULT_LIMITS,
        )
        return policy


class UserManager(BaseUserManager["User"]):
    """Creates users by e-mail address."""

    @classmethod
    def normalize_email(cls, email: str | None) -> str:
        """Return the address in lower case, as it is stored, so that no spelling of it is another account."""
        return (email or "").strip().lower()

    def create_user(self, email: str, password: str | None = None, **fields: Any) -> "User":
        """Create and return a user; without a password, the user cannot sign in yet."""
        if not email:
            raise ValueError("a user needs an e-mail address")
        fields.setdefault("policy", ResourcePolicy.default())
        user = self.model(email=self.normalize_email(email), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> "User":
        """Create and return a superadmin."""
        return self.create_user(email, password, **{**fields, "is_staff": True, "is_superuser": True})

    def get_by_natural_key(self, username: str | None) -> "User":
        """Return the user with this e-mail address, in any case. Raises User.DoesNotExist."""
        return self.get(email__iexact=username)


class User(AbstractUser):
    """A user, who signs in with an e-mail address. Django superusers are the platform's superadmins."""

    username = None  # type: ignore[assignment]  # AbstractUser's field is removed; the e-mail address is the name
    email = models.EmailField("e-mail address", unique=True)
    policy = models.ForeignKey(ResourcePolicy, on_delete=models.PROTECT, related_name="users")
    language = models.CharField(max_length=16, blank=True, help_text="Of pages and mails; empty: the browser's")
    share_weight = models.PositiveSmallIntegerField(
        null=True, blank=True, validators=WEIGHT_VALIDATORS, help_text="In place of the policy's; empty: the policy's"
    )

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []
    objects: ClassVar[UserManager] = UserManager()  # type: ignore[assignment]

    class Meta:
        ordering = ("email",)
        constraints = (models.UniqueConstraint(Lower("email"), name="user_email_unique_in_any_case"),)

    def __str__(self) -> str:
        return self.email

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save the user, with the address in lower case."""
        self.email = User.objects.normalize_email(self.email)
        super().save(*args, **kwargs)


class ProjectQuerySet(models.QuerySet["Project"]):
    """Questions about projects."""

    def visible_to(self, user: User) -> "ProjectQuerySet":
        """Return the projects that `user` is a member of, or all for a superadmin."""
        return self if user.is_superuser else self.filter(memberships__user=user)

    def usable_by(self, user: User) -> "ProjectQuerySet":
        """Return the active projects for which `user` may start sessions: those that they are a member of."""
        return self.filter(is_active=True, memberships__user=user)

    def managed_by(self, user: User) -> "ProjectQuerySet":
        """Return the projects that `user` manages, inactive ones included, or all for a superadmin."""
        if user.is_superuser:
            return self
        return self.filter(memberships__user=user, memberships__role=ProjectRole.MANAGER.value)


class Project(models.Model):
    """A team, with limits for the sessions of its members together and a weight of its own in fair share."""

    name = models.CharField(
        max_length=64,
        unique=True,
        validators=[RegexValidator(PROJECT_NAME, "Use letters, digits and . _ - and begin with a letter or digit.")],
        help_text="Letters, digits and . _ -, such as vision-lab",
    )
    description = models.CharField(max_length=200, blank=True)
    policy = models.ForeignKey(
        ResourcePolicy,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="projects",
        help_text="Limits for the sessions of all members together; empty: those of each member's own policy alone",
    )
    share_weight = models.PositiveSmallIntegerField(
        default=DEFAULT_WEIGHT,
        validators=WEIGHT_VALIDATORS,
        help_text="In resource groups of fair order, where its sessions count for the project: 200 is due twice as "
        "much as 100",
    )
    is_active = models.BooleanField(
        "active", default=True, help_text="An inactive project starts no sessions; those that run go on"
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    members = models.ManyToManyField(User, through="Membership", related_name="projects")

    objects: ClassVar[ProjectQuerySet] = ProjectQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering = ("name",)
        constraints = (models.UniqueConstraint(Lower("name"), name="project_name_unique_in_any_case"),)

    def __str__(self) -> str:
        return self.name

    def limits(self) -> PolicyLimits:
        """Return the limits of all members' sessions together; an inactive project may hold none."""
        limits = self.policy.limits() if self.policy else PolicyLimits()
        return limits if self.is_active else replace(limits, sessions=0)


class ProjectRole(models.TextChoices):
    """What a member may do in a project."""

    MEMBER = "member", "member: starts sessions"
    MANAGER = "manager", "manager: also sees and ends the sessions of all members"


class Membership(models.Model):
    """The fact that a user belongs to a project."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=8, choices=ProjectRole.choices, default=ProjectRole.MEMBER.value)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ("project", "user")
        constraints = (models.UniqueConstraint(fields=("user", "project"), name="membership_unique"),)

    def __str__(self) -> str:
        return f"{self.user} in {self.project}"


class SshKey(models.Model):
    """A public key for SSH access to its owner's sessions. Unique, since it identifies the user."""

    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="ssh_keys")
    title = models.CharField(max_length=64)
    text = models.TextField("public key", help_text="One line in OpenSSH's format")
    fingerprint = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(default=timezone.now)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("created_at", "id")
        verbose_name = "SSH key"

    def __str__(self) -> str:
        return self.title


class TokenScope(models.TextChoices):
    """What an API token may be used for."""

    FULL = "full", gettext_lazy("everything that I may do")
    READ = "read", gettext_lazy("only reading")


class ApiTokenManager(models.Manager["ApiToken"]):
    """Makes tokens."""

    def issue(
        self,
        user: User,
        *,
        name: str = "",
        scope: TokenScope = TokenScope.FULL,
        lifetime: timedelta = TOKEN_LIFETIME,
    ) -> tuple["ApiToken", str]:
        """Store a token and return it with its text, which is stored nowhere; it is valid for 30 days by default."""
        digest, text = get_digest_token()
        expiry = timezone.now() + lifetime
        key = text[: CONSTANTS.TOKEN_KEY_LENGTH]
        return self.create(digest=digest, token_key=key, user=user, expiry=expiry, name=name, scope=scope.value), text


class ApiToken(models.Model):
    """A token for the API, with the columns that knox expects. Only its digest is stored."""

    digest = models.CharField(primary_key=True, max_length=128)
    token_key = models.CharField(max_length=25, db_index=True, help_text="Its first characters")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="auth_token_set")
    created = models.DateTimeField(auto_now_add=True)
    expiry = models.DateTimeField(null=True, blank=True)
    uid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)  # in addresses, instead of the digest
    name = models.CharField(max_length=64, blank=True, help_text="Empty for one got by e-mail and password")
    scope = models.CharField(max_length=4, choices=TokenScope.choices, default=TokenScope.FULL.value)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)

    objects: ClassVar[ApiTokenManager] = ApiTokenManager()

    class Meta:
        ordering = ("-created", "digest")
        verbose_name = "API token"
        constraints = (
            models.UniqueConstraint(fields=("user", "name"), condition=~models.Q(name=""), name="token_name_unique"),
        )

    def __str__(self) -> str:
        return self.name or self.token_key

    @property
    def has_expired(self) -> bool:
        """True once the API refuses it."""
        return self.expiry is not None and self.expiry <= timezone.now()


class LoginSession(models.Model):
    """A browser in which a user is signed in; it goes with the row of Django's that it describes."""

    session = models.OneToOneField(Session, on_delete=models.CASCADE, related_name="login")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="logins")
    started_at = models.DateTimeField(default=timezone.now)
    last_seen_at = models.DateTimeField(default=timezone.now, help_text="To within five minutes")
    address = models.GenericIPAddressField(null=True, blank=True)
    agent = models.CharField("User-Agent", max_length=AGENT_LENGTH, blank=True)

    class Meta:
        ordering = ("-last_seen_at", "-id")

    def __str__(self) -> str:
        return f"{self.user}, {self.browser} {self.system}"

    @property
    def browser(self) -> str:
        """The name of the browser, "" if it is not known."""
        return browser_of(self.agent)

    @property
    def system(self) -> str:
        """The name of the browser's operating system, "" if it is not known."""
        return system_of(self.agent)


class SshHostKey(models.Model):
    """A single row with the public key of the platform's SSH servers, by which users recognize them."""

    singleton = models.BooleanField(default=True, unique=True, editable=False)
    text = models.TextField("public key", help_text="One line in OpenSSH's format")
    fingerprint = models.CharField(max_length=64)
    recorded_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = (models.CheckConstraint(condition=models.Q(singleton=True), name="ssh_host_key_is_one_row"),)
        verbose_name = "SSH host key"

    def __str__(self) -> str:
        return self.fingerprint
