"""What sessions use of their hosts, and what they used over their whole life, for fair share too."""

from django.db import models
from django.utils import timezone

from accounts.models import Project, User
from resources.amounts.units import PLAIN_WEIGHT
from resources.models import ResourceGroup
from sessions.models.session import Session


class SessionUsage(models.Model):
    """What a session used at a moment, as its host saw it; kept for two hours. Null is what could not be measured."""

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="usages")
    at = models.DateTimeField(default=timezone.now, db_index=True)
    cpu_milli = models.PositiveIntegerField("CPU (thousandths of a core)", null=True)
    memory = models.PositiveBigIntegerField(
        "memory (bytes)", null=True, help_text="Without page cache that can be given back"
    )
    received = models.PositiveBigIntegerField("received (bytes per second)", null=True)
    sent = models.PositiveBigIntegerField("sent (bytes per second)", null=True)
    gpu_memory = models.PositiveBigIntegerField("GPU memory (bytes)", null=True)
    gpu_utilisation = models.PositiveSmallIntegerField(
        "GPU utilisation (%)", null=True, help_text="Of its devices' time; null if it cannot be measured per session"
    )

    class Meta:
        ordering = ("-at", "-id")
        indexes = (models.Index(fields=("session", "-at"), name="usage_of_session"),)

    def __str__(self) -> str:
        return f"{self.session_id} at {self.at}"


class PastSize(models.Model):
    """What a session held until it was resized, or placed anew on other GPUs; what it holds since is in its own row.

    Written by a database trigger, whoever changes the amounts (`migrations/0040_gpu_weights.py`).
    """

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="past_sizes", db_index=False)
    until = models.DateTimeField()
    cpu = models.PositiveIntegerField("CPU cores")
    memory = models.PositiveBigIntegerField("memory (bytes)")
    fgpu = models.PositiveIntegerField("milli-fGPU")
    gpu_weight_milli = models.PositiveIntegerField("weight of its GPUs (thousandths)", db_default=PLAIN_WEIGHT)

    class Meta:
        ordering = ("until", "id")
        indexes = (models.Index(fields=("session", "until"), name="past_size_of_session"),)

    def __str__(self) -> str:
        return f"{self.session_id} until {self.until}"


class UsageHistory(models.Model):
    """What a session used from its start on, in a bounded number of points (`sessions.usage.points`)."""

    session = models.OneToOneField(Session, on_delete=models.CASCADE, primary_key=True, related_name="usage_history")
    begun_at = models.DateTimeField()
    step_seconds = models.PositiveIntegerField()
    points = models.JSONField(default=list)
    folded_until = models.DateTimeField(help_text="Moment of the last record in the points")
    gpu_memory_share = models.PositiveBigIntegerField("share of GPU memory (bytes)", null=True)
    gpu_memory_cards = models.PositiveBigIntegerField("memory of its GPUs (bytes)", null=True)

    class Meta:
        verbose_name_plural = "usage histories"

    def __str__(self) -> str:
        return f"{self.session_id} from {self.begun_at}"


class SummedDay(models.Model):
    """A day (UTC) that is over, of which there are sums; `sessions.usage.sums` writes them."""

    day = models.DateField(primary_key=True)

    def __str__(self) -> str:
        return str(self.day)


class UsageSum(models.Model):
    """A part of what a user's sessions of one project, or of none, held and waited for in a group on a day.

    Several rows may be of one day and user: what was held, and what was measured.
    """

    day = models.ForeignKey(SummedDay, on_delete=models.CASCADE, related_name="sums")
    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+", db_index=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, null=True, related_name="+", db_index=False)
    resource_group = models.ForeignKey(ResourceGroup, on_delete=models.CASCADE, related_name="+", db_index=False)
    fgpu_milli_seconds = models.FloatField("milli-fGPU seconds", db_default=0.0)
    weighted_fgpu_milli_seconds = models.FloatField("milli-fGPU seconds by weight", db_default=0.0)
    cpu_seconds = models.FloatField("core seconds", db_default=0.0)
    memory_byte_seconds = models.FloatField(db_default=0.0)
    waiting_seconds = models.FloatField(db_default=0.0)
    measured_fgpu_milli_seconds = models.FloatField("milli-fGPU seconds of known use", db_default=0.0)
    idle_fgpu_milli_seconds = models.FloatField("of that idle", db_default=0.0)

    def __str__(self) -> str:
        return f"{self.owner_id} for {self.project_id} of {self.resource_group_id} on {self.day_id}"


class UsageCorrection(models.Model):
    """Days (UTC) of which the record was changed later, until they are summed again.

    Written by database triggers, whoever changes the record (`migrations/0044_usage_sums.py`).
    """

    since = models.DateField()
    until = models.DateField(help_text="The last day")

    def __str__(self) -> str:
        return f"{self.since} to {self.until}"


class FairUse(models.Model):
    """What the ended sessions of a user, of one project or of none, have used of a group.

    Decayed to `at` by the group's half-life. A database trigger adds to it whenever a session ends that had started
    (`migrations/0022_fair_use_of_projects.py`).
    """

    group = models.ForeignKey(ResourceGroup, on_delete=models.CASCADE, related_name="fair_uses")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="fair_uses", db_index=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, null=True, related_name="fair_uses", db_index=False)
    cpu_seconds = models.FloatField("core seconds")
    memory_byte_seconds = models.FloatField()
    fgpu_milli_seconds = models.FloatField("milli-fGPU seconds")
    at = models.DateTimeField()

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=("user", "group", "project"), name="fair_use_one_per_association", nulls_distinct=False
            ),
        )

    def __str__(self) -> str:
        return f"{self.user_id} for {self.project_id} of {self.group_id} until {self.at}"
