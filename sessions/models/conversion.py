"""Conversions of sessions into images."""

import uuid
from typing import Final

from django.db import models
from django.db.models import Q
from django.utils import timezone

from accounts.models import User
from resources.models import Host, Image
from sessions.models.session import Session


class ConversionState(models.TextChoices):
    """How far a conversion is."""

    QUEUED = "QUEUED", "queued"
    SAVING = "SAVING", "saving what changed"
    PUSHING = "PUSHING", "pushing to the registry"
    DONE = "DONE", "done"
    FAILED = "FAILED", "failed"


ACTIVE_CONVERSIONS: Final = (ConversionState.QUEUED, ConversionState.SAVING, ConversionState.PUSHING)


class Conversion(models.Model):
    """A session's container on its way to a private image of the session's owner."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="conversions")
    attempt = models.PositiveIntegerField(default=0, help_text="The session's, whose container is saved")
    host = models.ForeignKey(Host, on_delete=models.SET_NULL, null=True, related_name="+")
    requested_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    name = models.CharField(max_length=64, help_text="The image's environment")
    tag = models.CharField(max_length=64, help_text="The image's version")
    reference = models.CharField(max_length=255, help_text="Full name and tag of the image")
    description = models.CharField(max_length=200, blank=True)
    state = models.CharField(max_length=10, choices=ConversionState.choices, default=ConversionState.QUEUED.value)
    progress = models.CharField(max_length=200, blank=True, help_text="In words")
    problem = models.TextField(blank=True, help_text="Why it failed")
    recipe = models.TextField(blank=True, help_text="A Dockerfile that repeats the changes, as far as they are known")
    image = models.ForeignKey(Image, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    ended_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering = ("-created_at",)
        constraints = (
            models.UniqueConstraint(
                fields=("session",),
                condition=Q(state__in=[state.value for state in ACTIVE_CONVERSIONS]),
                name="conversion_one_at_a_time",
            ),
            models.UniqueConstraint(
                fields=("reference",),
                condition=Q(state__in=[state.value for state in ACTIVE_CONVERSIONS]),
                name="conversion_reference_unique_while_active",
            ),
        )

    def __str__(self) -> str:
        return f"{self.session_id} -> {self.reference}"

    @property
    def is_active(self) -> bool:
        """True until the conversion has succeeded or failed."""
        return self.state in ACTIVE_CONVERSIONS


class ReportState(models.TextChoices):
    """How far a report of changes is."""

    QUEUED = "QUEUED", "queued"
    READY = "READY", "ready"
    FAILED = "FAILED", "failed"


class ChangeReport(models.Model):
    """What a session's container has that its image has not, as its host found when it was last asked."""

    session = models.OneToOneField(Session, on_delete=models.CASCADE, primary_key=True, related_name="change_report")
    attempt = models.PositiveIntegerField(help_text="The session's, whose container is looked at")
    state = models.CharField(max_length=8, choices=ReportState.choices, default=ReportState.QUEUED.value)
    requested_at = models.DateTimeField(default=timezone.now)
    made_at = models.DateTimeField(null=True, blank=True)
    report = models.JSONField(default=dict, blank=True, help_text="See hostworker.conversion.report")
    recipe = models.TextField(blank=True, help_text="A Dockerfile that repeats the changes, as far as they are known")
    problem = models.TextField(blank=True, help_text="Why there is none")

    def __str__(self) -> str:
        return f"changes of {self.session_id}"
