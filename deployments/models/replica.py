"""Replicas: the sessions that serve a deployment, with what is known of each."""

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.utils import timezone

from deployments.models.deployment import Deployment
from deployments.models.revision import Revision
from sessions.lifecycle import LIVE, Status
from sessions.models import Session


class ReplicaHealth(models.TextChoices):
    """What the probes of its host have found."""

    STARTING = "starting", "starting"  # it has not answered yet, and has time to
    HEALTHY = "healthy", "healthy"
    UNHEALTHY = "unhealthy", "unhealthy"  # too many probes in a row have failed


class ReplicaQuerySet(models.QuerySet["Replica"]):
    """Questions about replicas."""

    def live(self) -> "ReplicaQuerySet":
        """Return those whose session has not ended."""
        return self.filter(session__status__in=LIVE)

    def taking_requests(self) -> "ReplicaQuerySet":
        """Return those to which requests go."""
        return self.filter(session__status=Status.RUNNING, health=ReplicaHealth.HEALTHY, draining_since=None)


class Replica(models.Model):
    """A session that serves a deployment. Its process, its health and its traffic are three facts of their own."""

    session = models.OneToOneField(Session, on_delete=models.CASCADE, primary_key=True, related_name="replica")
    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="replica_rows")
    revision = models.ForeignKey(Revision, on_delete=models.CASCADE, related_name="replica_rows")
    health = models.CharField(
        max_length=9, choices=ReplicaHealth.choices, default=ReplicaHealth.STARTING.value, editable=False
    )
    health_detail = models.CharField(max_length=300, blank=True, editable=False, help_text="What the last probe found")
    failures = models.PositiveIntegerField(default=0, editable=False, help_text="Probes in a row that have failed")
    healthy_at = models.DateTimeField(null=True, editable=False, help_text="When it was healthy first")
    unhealthy_at = models.DateTimeField(null=True, editable=False, help_text="Since when it is unhealthy")
    draining_since = models.DateTimeField(
        null=True, editable=False, help_text="Since when it takes no new requests; empty: it takes them when healthy"
    )
    is_asleep = models.BooleanField(
        default=False, editable=False, help_text="Its session is parked until the deployment wakes"
    )
    woken_at = models.DateTimeField(null=True, editable=False, help_text="When it was resumed last, after a sleep")
    failure = models.CharField(max_length=300, blank=True, editable=False, help_text="Why it was given up")
    is_settled = models.BooleanField(default=False, editable=False, help_text="Its end was taken note of")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects: ClassVar[ReplicaQuerySet] = ReplicaQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering = ("created_at", "session")
        indexes = (
            models.Index(fields=("deployment",), condition=Q(is_settled=False), name="replica_unsettled"),
            models.Index(fields=("deployment", "-created_at"), name="replica_of_deployment"),
        )

    def __str__(self) -> str:
        return f"{self.session_id} of {self.deployment_id}"

    @property
    def takes_requests(self) -> bool:
        """Whether requests go to it; fetch `session` with it."""
        return self.session.status == Status.RUNNING and self.health == "healthy" and self.draining_since is None
