"""Webhooks, the messages to them, and the attempts to deliver these."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy

from accounts.models import User
from notifications.models import Notification
from sessions.models import SessionEvent
from webhooks.destinations import MAX_URL_LENGTH

MAX_TYPE_LENGTH = 40
NAME_LENGTH = 64
PROBLEM_LENGTH = 300


class DeliveryState(models.TextChoices):
    """How far a message is."""

    PENDING = "PENDING", gettext_lazy("waits")
    DELIVERED = "DELIVERED", gettext_lazy("delivered")
    FAILED = "FAILED", gettext_lazy("given up")


class Webhook(models.Model):
    """An address to which the platform sends events of its owner's sessions, or of all sessions for a superadmin."""

    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="webhooks", editable=False)
    name = models.CharField(max_length=NAME_LENGTH, blank=True)
    url = models.CharField("URL", max_length=MAX_URL_LENGTH)
    event_types = ArrayField(models.CharField(max_length=MAX_TYPE_LENGTH))
    covers_all = models.BooleanField(
        "all sessions", default=False, help_text="Of everybody; only while its owner is a superadmin"
    )
    is_enabled = models.BooleanField("enabled", default=True)
    disabled_reason = models.CharField(max_length=PROBLEM_LENGTH, blank=True, editable=False)
    failing_since = models.DateTimeField(null=True, editable=False, help_text="Since when no attempt has succeeded")
    encrypted_secret = models.BinaryField(editable=False)
    encrypted_old_secret = models.BinaryField(default=bytes, editable=False)
    old_secret_until = models.DateTimeField(null=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ("id",)

    def __str__(self) -> str:
        return self.name or self.url


class WebhookDelivery(models.Model):
    """A message to a webhook, which triggers write in the transaction of its event.

    Its body is composed when it is first sent. `due_at` is when to send it, or to try again; a process that sends it
    moves this on first.
    """

    webhook = models.ForeignKey(Webhook, on_delete=models.CASCADE, related_name="deliveries", db_index=False)
    message_id = models.CharField(max_length=40, unique=True)
    type = models.CharField(max_length=MAX_TYPE_LENGTH)
    session_event = models.ForeignKey(SessionEvent, on_delete=models.CASCADE, null=True, related_name="+")
    notification = models.ForeignKey(Notification, on_delete=models.SET_NULL, null=True, related_name="+")
    body = models.TextField(blank=True)
    state = models.CharField(max_length=10, choices=DeliveryState.choices, default=DeliveryState.PENDING)
    attempts = models.PositiveSmallIntegerField(default=0, help_text="Since it was made or last sent again by hand")
    created_at = models.DateTimeField(default=timezone.now)
    due_at = models.DateTimeField(null=True, default=timezone.now)
    delivered_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-id",)
        verbose_name_plural = "webhook deliveries"
        indexes = (
            models.Index(fields=("webhook", "-id"), name="webhook_delivery_list"),
            models.Index(fields=("due_at",), condition=Q(due_at__isnull=False), name="webhook_delivery_due"),
            models.Index(fields=("created_at",), name="webhook_delivery_age"),
        )
        constraints = (
            models.CheckConstraint(
                condition=Q(state="PENDING", due_at__isnull=False) | (~Q(state="PENDING") & Q(due_at=None)),
                name="webhook_delivery_pending_is_due",
            ),
        )

    def __str__(self) -> str:
        return f"{self.type} {self.message_id}"


class WebhookAttempt(models.Model):
    """One request to a webhook's address and what came of it."""

    delivery = models.ForeignKey(WebhookDelivery, on_delete=models.CASCADE, related_name="log")
    at = models.DateTimeField(default=timezone.now)
    status = models.PositiveSmallIntegerField(null=True, help_text="Of the HTTP response; empty: there was none")
    duration_ms = models.PositiveIntegerField()
    problem = models.CharField(max_length=PROBLEM_LENGTH, blank=True)
    response = models.TextField(blank=True, help_text="The beginning of the response")

    class Meta:
        ordering = ("id",)

    def __str__(self) -> str:
        return f"{self.status or self.problem}"
