"""What the launch wizard keeps for its users."""

from django.db import models
from django.utils import timezone

from accounts.models import User


class LaunchDraft(models.Model):
    """What a user has filled into the launch form and not launched yet, as it was typed; one per user."""

    owner = models.OneToOneField(User, on_delete=models.CASCADE, primary_key=True, related_name="launch_draft")
    values = models.JSONField(default=dict, help_text="The texts of each field by its name; empty: nothing is kept")
    source = models.CharField(max_length=2000, blank=True, help_text="Query of the link that the form began with")
    launched_form = models.CharField(
        max_length=32, blank=True, help_text="Key of the form launched last: what it still sends is not kept"
    )
    launched_digest = models.CharField(
        max_length=64, blank=True, db_default="", help_text="SHA-256 of what that form posted"
    )
    launched_to = models.TextField(blank=True, db_default="", help_text="Address to which that launch has led")
    updated_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("owner",)

    def __str__(self) -> str:
        return f"launch draft of {self.owner}"
