"""How the apps of a session are reached: endpoints, the tickets and links that open them, and what voids both.

Tickets, share links and login sessions are stored as SHA-256 digests: a reader of the tables can open nothing.
"""

import re
from datetime import timedelta
from typing import ClassVar, Final

from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone

from accounts.models import User
from resources import clock
from resources.models import APP_NAME
from sessions.models.session import SESSION_ID, Session

_LABEL: Final = re.compile(f"(?P<app>{APP_NAME})--(?P<session>{SESSION_ID})")
DIGEST_LENGTH: Final = 64  # hex digits of SHA-256
TICKET_LIFE: Final = timedelta(seconds=30)


class EndpointState(models.TextChoices):
    """Whether the app of an endpoint responds."""

    STARTING = "STARTING", "starting"  # the host starts it, or waits for its first response
    READY = "READY", "ready"
    FAILED = "FAILED", "failed"  # it exited or never responded; `detail` has the cause
    CLOSED = "CLOSED", "closed"  # no way leads to it until it is opened again; the row keeps its record


class AppObstacle(models.TextChoices):
    """Why nobody outside of its container reaches an app, as its host has last found."""

    LOOPBACK = "LOOPBACK", "listens on 127.0.0.1 only"
    EXITED = "EXITED", "has ended"


class EndpointQuerySet(models.QuerySet["Endpoint"]):
    """Questions about endpoints."""

    def visible_to(self, user: User) -> "EndpointQuerySet":
        """Return the endpoints of the sessions that `user` may see."""
        return self if user.is_superuser else self.filter(session__owner=user)

    def unclosed(self) -> "EndpointQuerySet":
        """Return the endpoints that were opened and not closed since."""
        return self.exclude(state=EndpointState.CLOSED)

    def labelled(self, label: str) -> "EndpointQuerySet":
        """Return the endpoint of this label, if there is one; labels that are none find nothing."""
        match = _LABEL.fullmatch(label)
        return self.filter(app=match["app"], session=match["session"]) if match else self.none()


class Endpoint(models.Model):
    """One app of one session, as it is reached: the origin `{app}--{session}` below the apps' domain."""

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="endpoints")
    app = models.CharField(max_length=20, validators=[RegexValidator(f"^{APP_NAME}$")], help_text="jupyter, p8080, ...")
    title = models.CharField(max_length=64)
    port = models.PositiveIntegerField(help_text="In the container")
    token = models.CharField(max_length=64, blank=True, help_text="What the app takes as its own log-in; never shown")
    state = models.CharField(max_length=8, choices=EndpointState.choices, default=EndpointState.STARTING.value)
    detail = models.CharField(max_length=300, blank=True, help_text="What it is doing, or why it failed")
    output = models.TextField(blank=True, help_text="Its last lines while it starts, and where it failed")
    obstacle = models.CharField(max_length=8, blank=True, choices=AppObstacle.choices, default="", db_default="")
    epoch = models.PositiveIntegerField(default=1, help_text="Cookies of another epoch are void")
    is_public = models.BooleanField(default=False, help_text="Anybody who knows the address may use it")
    public_until = models.DateTimeField(null=True, blank=True)
    listen_port = models.PositiveIntegerField(
        null=True, blank=True, unique=True, help_text="Of the port pool; null: only the origin"
    )
    opened_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    opened_at = models.DateTimeField(default=timezone.now)

    objects: ClassVar[EndpointQuerySet] = EndpointQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering = ("opened_at", "id")
        constraints = (
            models.UniqueConstraint(fields=("session", "app"), name="endpoint_one_per_app"),
            models.CheckConstraint(condition=Q(port__gte=1, port__lte=65535), name="endpoint_port_exists"),
        )
        indexes = (  # each host asks for those of its sessions all the time
            models.Index("session", condition=Q(state=EndpointState.STARTING), name="endpoint_starting"),
        )

    def __str__(self) -> str:
        return self.label

    @property
    def label(self) -> str:
        """The first label of its host name."""
        return f"{self.app}--{self.session_id}"


class HandOver(models.Model):
    """What hands a browser over to an address of its own: once, within 30 seconds, in the browser that asked for it."""

    digest = models.CharField(primary_key=True, max_length=DIGEST_LENGTH)
    user = models.ForeignKey(User, on_delete=models.CASCADE, null=True, related_name="+")
    login = models.CharField(max_length=DIGEST_LENGTH, help_text="Digest of the login session or share link behind it")
    state = models.CharField(max_length=DIGEST_LENGTH, help_text="Digest of the nonce that the browser keeps")
    next = models.CharField(max_length=2000, default="/")
    expires_at = models.DateTimeField(db_index=True)
    used_at = models.DateTimeField(null=True)

    class Meta:
        abstract = True


class Ticket(HandOver):
    """A hand-over to an endpoint."""

    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="tickets")

    def __str__(self) -> str:
        return f"{self.endpoint_id} until {self.expires_at}"


def forbids_public_apps(path: str, *, is_forbidden: bool = True) -> Q:
    """Return the condition that a policy of the session behind `path` forbids public apps; or that none does."""
    column = "policy__allow_public_apps"
    if is_forbidden:
        return Q(**{f"{path}owner__{column}": False}) | Q(**{f"{path}project__{column}": False})
    by_project = Q(**{f"{path}project__policy": None}) | Q(**{f"{path}project__{column}": True})
    return Q(**{f"{path}owner__{column}": True}) & by_project


class ShareLinkQuerySet(models.QuerySet["ShareLink"]):
    """Questions about share links."""

    def valid(self) -> "ShareLinkQuerySet":
        """Return the links that open their endpoint now, if it is ready."""
        allowed = self.filter(forbids_public_apps("endpoint__session__", is_forbidden=False))
        return allowed.filter(revoked_at=None, expires_at__gt=clock.now(), endpoint__session__owner__is_active=True)


class ShareLink(models.Model):
    """A link by which anybody who holds it may use one endpoint until it expires or is revoked."""

    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="share_links")
    digest = models.CharField(max_length=DIGEST_LENGTH, unique=True)
    note = models.CharField(max_length=64, blank=True, help_text="Whom it is for")
    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[ShareLinkQuerySet] = ShareLinkQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering = ("-created_at", "-id")

    def __str__(self) -> str:
        return self.note or f"link of {self.created_at:%Y-%m-%d %H:%M}"


class Revocation(models.Model):
    """Cookies of this login session, share link or user that were issued before `at` are void; kept for a day."""

    login = models.CharField(max_length=DIGEST_LENGTH, blank=True)
    user = models.ForeignKey(User, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        constraints = (
            models.CheckConstraint(condition=Q(login="") ^ Q(user=None), name="revocation_of_a_login_or_a_user"),
        )

    def __str__(self) -> str:
        return f"{self.user or self.login} at {self.at}"


class AppPort(models.Model):
    """The last user of each port of the pool. Where apps are told apart by port, browsers keep data per port."""

    port = models.PositiveIntegerField(primary_key=True)
    user = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    at = models.DateTimeField(help_text="When the port was given to the app")

    def __str__(self) -> str:
        return f"{self.port} of {self.user}"


class EndpointEvent(models.Model):
    """An audit record of access to apps: opened, published, shared or revoked, and by whom."""

    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="events")
    at = models.DateTimeField(default=timezone.now)
    what = models.CharField(max_length=200)
    actor = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")

    class Meta:
        ordering = ("id",)

    def __str__(self) -> str:
        return self.what
