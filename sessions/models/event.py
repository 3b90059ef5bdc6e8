"""The record of every change of status, and ends that can still be undone."""

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


class RequestedEnd(models.Model):
    """The session ends at `due_at` unless this row is deleted before; of a cluster all members do with the first."""

    session = models.OneToOneField(Session, on_delete=models.CASCADE, primary_key=True, related_name="requested_end")
    actor = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    due_at = models.DateTimeField(db_index=True)
    failures = models.PositiveSmallIntegerField(default=0, db_default=0)  # ends that the database has refused

    def __str__(self) -> str:
        return f"{self.session_id} at {self.due_at}"

    def may_be_undone_by(self, user: User) -> bool:
        """Return whether the user asked for it, or is a superadmin."""
        return user.is_superuser or self.actor_id == user.pk
