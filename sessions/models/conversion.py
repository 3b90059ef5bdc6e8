"""Conversions of sessions into images."""

import uuid
from typing import Final

from django.db import models
from django.db.models import Q
from django.utils import timezone

from accounts.models import User
from resources.models import Image
from sessions.models.session import Session


class ConversionState(models.TextChoices):
    """How far a conversion is."""

    QUEUED = "QUEUED", "queued"
    COMMITTING = "COMMITTING", "saving the container"
    PUSHING = "PUSHING", "pushing to the registry"
    DONE = "DONE", "done"
    FAILED = "FAILED", "failed"


ACTIVE_CONVERSIONS: Final = (ConversionState.QUEUED, ConversionState.COMMITTING, ConversionState.PUSHING)


class Conversion(models.Model):
    """A session's container on its way to a private image of the session's owner."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="conversions")
    requested_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
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
        )

    def __str__(self) -> str:
        return f"{self.session_id} -> {self.reference}"
