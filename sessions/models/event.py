"""The record of every change of status."""

from django.db import models
from django.utils import timezone

from accounts.models import User
from sessions.models.session import Session


class SessionEvent(models.Model):
    """One change of status: the session's timeline, and the record that audits it."""

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="events", db_index=False)
    at = models.DateTimeField(default=timezone.now)
    old_status = models.CharField(max_length=16, blank=True)
    new_status = models.CharField(max_length=16)
    reason = models.CharField(max_length=32)
    detail = models.CharField(max_length=300, blank=True)
    actor = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")

    class Meta:
        ordering = ("id",)
        indexes = (models.Index(fields=("session", "id"), name="event_of_session"),)

    def __str__(self) -> str:
        return f"{self.old_status} -> {self.new_status}"
