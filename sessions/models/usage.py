"""What sessions used of their GPUs."""

from django.db import models
from django.utils import timezone

from sessions.models.session import Session


class SessionUsage(models.Model):
    """What a session used of its GPUs at a moment, as its host saw it; kept for a day."""

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="usages")
    at = models.DateTimeField(default=timezone.now, db_index=True)
    gpu_memory = models.PositiveBigIntegerField("GPU memory (bytes)")
    gpu_utilisation = models.PositiveSmallIntegerField(
        "GPU utilisation (%)", null=True, help_text="Of its devices' time; null if it cannot be measured per session"
    )

    class Meta:
        ordering = ("-at", "-id")
        indexes = (models.Index(fields=("session", "-at"), name="usage_of_session"),)

    def __str__(self) -> str:
        return f"{self.session_id} at {self.at}"
