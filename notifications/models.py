"""Notifications of users, how they want to be told, and announcements to everybody."""

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.utils import timezone

from accounts.models import User
from deployments.models import Deployment
from notifications.kinds import NoticeKind
from resources.models import ResourceGroup
from sessions.models import Session

KIND_CHOICES = [(kind.value, kind.value) for kind in NoticeKind]


class Notification(models.Model):
    """One thing that a user is told, once: `key` says what it is. Its text is composed in its reader's language."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="notifications", db_index=False)
    key = models.CharField(max_length=80, help_text="What it tells of; a user is told of it once")
    kind = models.CharField(max_length=16, choices=KIND_CHOICES)
    session = models.ForeignKey(Session, on_delete=models.CASCADE, null=True, related_name="notifications")
    facts = models.JSONField(default=dict, help_text="What its text needs")
    created_at = models.DateTimeField(default=timezone.now)
    on_page = models.BooleanField()
    in_browser = models.BooleanField()
    by_email = models.BooleanField()
    shown_at = models.DateTimeField(null=True, help_text="When a page or a browser showed it")
    read_at = models.DateTimeField(null=True)
    email_due_at = models.DateTimeField(null=True, help_text="When to send it, or to try again; empty: not at all")
    email_attempts = models.PositiveSmallIntegerField(default=0)
    emailed_at = models.DateTimeField(null=True)
    email_problem = models.CharField(max_length=200, blank=True)

    class Meta:
        ordering = ("-id",)
        constraints = (models.UniqueConstraint(fields=("user", "key"), name="notification_once"),)
        indexes = (
            models.Index(fields=("user", "-id"), condition=Q(on_page=True), name="notification_list"),
            models.Index(fields=("user",), condition=Q(read_at=None, on_page=True), name="notification_unread"),
            models.Index(fields=("user",), condition=Q(shown_at=None), name="notification_unshown"),
            models.Index(fields=("email_due_at",), condition=Q(email_due_at__isnull=False), name="notification_mail"),
            models.Index(fields=("created_at",), name="notification_age"),
        )

    def __str__(self) -> str:
        return f"{self.kind} to {self.user_id}"


class ServingWatch(models.Model):
    """Whether a deployment serves, since when, and whether its owner knows that it does not."""

    deployment = models.OneToOneField(
        Deployment, on_delete=models.CASCADE, primary_key=True, related_name="watch", editable=False
    )
    serves = models.BooleanField(editable=False)
    since = models.DateTimeField(editable=False)
    is_down_told = models.BooleanField(default=False, editable=False)

    class Meta:
        verbose_name_plural = "serving watches"

    def __str__(self) -> str:
        return f"{self.deployment_id} {'serves' if self.serves else 'does not serve'}"


class NotificationPreference(models.Model):
    """How a user wants to be told of one kind; without a row, as `kinds.DEFAULT_WAYS` says."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="notification_preferences", db_index=False)
    kind = models.CharField(max_length=16, choices=KIND_CHOICES)
    on_page = models.BooleanField(default=True)
    in_browser = models.BooleanField(default=True)
    by_email = models.BooleanField(default=False)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("user", "kind"), name="preference_one_per_kind"),)

    def __str__(self) -> str:
        return f"{self.kind} to {self.user_id}"


class AnnouncementQuerySet(models.QuerySet["Announcement"]):
    """Questions about announcements."""

    def current(self) -> "AnnouncementQuerySet":
        """Return those that are shown at this time, the most serious first."""
        now = timezone.now()
        shown = self.filter(Q(ends_at=None) | Q(ends_at__gt=now), starts_at__lte=now)
        return shown.order_by("-level", "-starts_at", "-id")

    def visible_to(self, user: User) -> "AnnouncementQuerySet":
        """Return those that are for this user: for everybody, or for those who may use one of their groups."""
        if user.is_superuser:
            return self
        theirs = Announcement.resource_groups.through.objects.filter(
            resourcegroup__in=ResourceGroup.objects.usable_by(user)
        )
        return self.filter(Q(resource_groups=None) | Q(pk__in=theirs.values("announcement")))


class Announcement(models.Model):
    """What an administrator tells everybody, or the users of groups, on every page until it ends or is dismissed."""

    class Level(models.IntegerChoices):
        """How serious it is."""

        INFORMATION = 1, "information"
        WARNING = 2, "warning"
        OUTAGE = 3, "outage"

    text = models.CharField(max_length=500)
    level = models.PositiveSmallIntegerField(choices=Level.choices, default=Level.INFORMATION)
    starts_at = models.DateTimeField("shown from", default=timezone.now)
    ends_at = models.DateTimeField("shown until", null=True, blank=True, help_text="Empty: until it is deleted")
    resource_groups = models.ManyToManyField(
        ResourceGroup,
        blank=True,
        related_name="announcements",
        help_text="Shown to those who may use one of these; none: to everybody",
    )
    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, editable=False, related_name="+")
    dismissed_by = models.ManyToManyField(User, through="Dismissal", related_name="+", editable=False)

    objects: ClassVar[AnnouncementQuerySet] = AnnouncementQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering = ("-starts_at", "-id")
        constraints = (
            models.CheckConstraint(
                condition=Q(ends_at=None) | Q(ends_at__gt=models.F("starts_at")),
                name="announcement_ends_after_start",
                violation_error_message="It must end after it starts.",
            ),
        )

    def __str__(self) -> str:
        return self.text[:80]


class Dismissal(models.Model):
    """A user has read an announcement and wants to see it no more."""

    announcement = models.ForeignKey(Announcement, on_delete=models.CASCADE, related_name="dismissals")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")

    class Meta:
        constraints = (models.UniqueConstraint(fields=("announcement", "user"), name="dismissal_once"),)

    def __str__(self) -> str:
        return f"{self.announcement_id} by {self.user_id}"
