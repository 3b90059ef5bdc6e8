"""The table of the audit log."""

from django.conf import settings
from django.db import models
from django.utils import timezone


class AuditSource(models.TextChoices):
    """By what an administrative act was done."""

    PAGE = "page", "page"
    API = "api", "API"
    COMMAND = "command", "command"


class AuditEntry(models.Model):
    """An administrative act: who did what to which object, with the values before and after. Never changed."""

    at = models.DateTimeField(default=timezone.now, db_index=True, editable=False)
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+", editable=False
    )
    actor_name = models.CharField(
        "who",
        max_length=254,
        editable=False,
        help_text="The e-mail address as it was then; of a command the operating system's user and host",
    )
    source = models.CharField(
        "interface", max_length=7, choices=AuditSource.choices, default=AuditSource.PAGE.value, editable=False
    )
    address = models.GenericIPAddressField(null=True, editable=False, help_text="From which it was done")
    action = models.CharField(max_length=64, editable=False)
    object_type = models.CharField(max_length=100, editable=False)
    object_id = models.CharField(max_length=64, editable=False)
    object_text = models.CharField("object", max_length=200, editable=False)
    changes = models.JSONField(default=dict, editable=False, help_text="{field: [before, after]}")

    class Meta:
        ordering = ("-at", "-id")
        verbose_name = "audit entry"
        verbose_name_plural = "audit log"
        indexes = (models.Index(fields=("object_type", "object_id"), name="audit_object"),)

    def __str__(self) -> str:
        return f"{self.actor_name}: {self.action} {self.object_text}"
