"""Users, API tokens, SSH keys and login sessions; policies, projects, invitations and the audit log from below."""

import uuid
from datetime import timedelta
from typing import Any, ClassVar, Final

from django.contrib.auth.models import AbstractUser, BaseUserManager
from django.contrib.sessions.models import Session
from django.db import models
from django.db.models.functions import Lower
from django.utils import timezone
from django.utils.translation import gettext_lazy
from knox.models import get_digest_token
from knox.settings import CONSTANTS

from accounts.models.policies import WEIGHT_VALIDATORS, ResourcePolicy
from accounts.models.user_agents import AGENT_LENGTH, browser_of, system_of

TOKEN_LIFETIME: Final = timedelta(days=30)


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
        if "policy" not in fields:
            fields["policy"] = ResourcePolicy.default()
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
        """Store a token and return it with its text, which is stored nowhere; it is valid for 30 days by default.

        The user's tokens that have expired are deleted.
        """
        digest, text = get_digest_token()
        now = timezone.now()
        self.filter(user=user, expiry__lte=now).delete()
        expiry = now + lifetime
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
