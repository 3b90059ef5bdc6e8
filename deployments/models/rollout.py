"""How a deployment rolls out revisions, and the rollout under way where it does so by steps."""

from typing import Final

from django.db import models
from django.db.models import Q

ALL: Final = 100  # percent


class RolloutStrategy(models.TextChoices):
    """How a new revision takes the place of the old one."""

    ROLLING = "rolling", "rolling"  # replica by replica
    CANARY = "canary", "canary"  # by a growing share of the requests, as long as it does no worse
    BLUE_GREEN = "blue_green", "blue/green"  # all requests at once, when all of its replicas are healthy


def default_canary_steps() -> list[int]:
    """Return the shares of the requests, in percent, that a new revision gets one after another."""
    return [5, 50]


class RolloutSettings(models.Model):
    """The settings of a deployment that say how revisions are rolled out."""

    strategy = models.CharField(
        max_length=10, choices=RolloutStrategy.choices, default=RolloutStrategy.ROLLING.value, help_text="Of rollouts"
    )
    canary_steps = models.JSONField(
        default=default_canary_steps, help_text="Percent of the requests that a new revision gets, rising"
    )
    step_seconds = models.PositiveIntegerField(
        default=300, help_text="Of each step of a canary, and for which old replicas stay after blue/green"
    )
    max_error_points = models.FloatField(
        default=1.0, help_text="Percentage points more failed requests than those of the old revision"
    )
    max_p95_ratio = models.FloatField(default=1.5, help_text="The 95th percentile of durations, to that of the old one")
    given_up_why = models.CharField(max_length=300, blank=True, editable=False, help_text="Empty: its starts failed")

    class Meta:
        abstract = True


class StepwiseRollout(models.Model):
    """A rollout by steps that is under way: from the deployment's previous revision to the current one.

    It has none while a rollout replaces replica by replica, and once the last step has passed.
    """

    deployment = models.OneToOneField(
        "Deployment", on_delete=models.CASCADE, primary_key=True, related_name="rollout", editable=False
    )
    strategy = models.CharField(max_length=10, choices=RolloutStrategy.choices, editable=False)
    steps = models.JSONField(default=list, editable=False, help_text="Percent of the requests, of each step")
    step = models.PositiveSmallIntegerField(default=0, editable=False, help_text="From 0")
    begun_at = models.DateTimeField(
        null=True, editable=False, help_text="When requests went to its replicas; empty: they are not healthy yet"
    )
    counted = models.JSONField(default=dict, editable=False, help_text="What each revision had answered by then")

    class Meta:
        constraints = (models.CheckConstraint(condition=~Q(strategy="rolling"), name="rollout_by_steps"),)

    def __str__(self) -> str:
        return f"{self.strategy} of {self.deployment_id}, step {self.step}"

    @property
    def is_canary(self) -> bool:
        """Whether the share of requests grows by steps."""
        return self.strategy == RolloutStrategy.CANARY

    @property
    def percent(self) -> int:
        """For which share of the requests replicas of the new revision are wanted."""
        return int(self.steps[self.step]) if self.is_canary else ALL

    @property
    def percent_now(self) -> int:
        """Which share of the requests goes to the new revision."""
        if self.begun_at is not None:
            return self.percent
        return int(self.steps[self.step - 1]) if self.is_canary and self.step else 0
