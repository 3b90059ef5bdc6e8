"""How a deployment follows its load: bounds, rules, and whether it sleeps while nobody uses it."""

from django.core.validators import RegexValidator
from django.db import models
from django.db.models import F, Q

MAX_EXPRESSION_LENGTH = 1000
MAX_QUERY_NAME_LENGTH = 64


class ScalingMetric(models.TextChoices):
    """What a rule looks at. Its target is what one replica is for."""

    OUTSTANDING = "outstanding", "requests under way and waiting"
    REQUESTS = "requests", "requests per second"
    GPU = "gpu", "use of its share of the GPU, in percent"
    QUERY = "query", "result of a Prometheus query"


class SleepAction(models.TextChoices):
    """What becomes of the replicas of a deployment that falls asleep."""

    PARK = "park", "park one, which wakes faster"
    END = "end", "end all"


class ScalingSettings(models.Model):
    """The columns of a deployment that are about its load."""

    min_replicas = models.PositiveSmallIntegerField(default=1, help_text="While it is awake")
    max_replicas = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="Empty: it is not scaled by its load"
    )
    down_after_seconds = models.PositiveIntegerField(
        default=300, help_text="Replicas are ended once no more were needed for as long"
    )
    cooldown_seconds = models.PositiveIntegerField(default=15, help_text="Between two changes of their number")
    idle_seconds = models.PositiveIntegerField(
        null=True, blank=True, help_text="Without a request, before it falls asleep; empty: never"
    )
    idle_action = models.CharField(max_length=4, choices=SleepAction.choices, default=SleepAction.PARK.value)
    wake_seconds = models.PositiveIntegerField(
        default=120, help_text="That a request waits at most for a replica to wake"
    )
    max_fgpu = models.PositiveIntegerField(
        "milli-fGPU at most",
        null=True,
        blank=True,
        help_text="Of each replica, to which its share grows before a further one comes; empty: it stays",
    )
    is_preemptible = models.BooleanField(
        "preemptible",
        default=False,
        db_default=False,
        help_text="Replicas beyond the least end for sessions that need their resources",
    )
    asleep_since = models.DateTimeField(
        null=True, editable=False, help_text="Since when it has no replicas, until a request comes"
    )
    waking_since = models.DateTimeField(
        null=True, editable=False, help_text="When a request came that it does not serve yet"
    )

    class Meta:
        abstract = True
        constraints = (
            models.CheckConstraint(
                condition=Q(max_replicas=None) | Q(min_replicas__gte=1, min_replicas__lte=F("max_replicas")),
                name="deployment_scaling_bounds",
            ),
            models.CheckConstraint(condition=Q(asleep_since=None) | Q(replicas=0), name="deployment_asleep_wants_none"),
        )


class PrometheusQuery(models.Model):
    """A query that rules may name. Only administrators write PromQL: it reads what Prometheus has of everybody."""

    name = models.CharField(
        max_length=MAX_QUERY_NAME_LENGTH, unique=True, validators=[RegexValidator("^[a-z0-9][a-z0-9._-]*$")]
    )
    title = models.CharField(max_length=100)
    expression = models.CharField(
        max_length=MAX_EXPRESSION_LENGTH,
        help_text="In PromQL, its result one number; $deployment is the id of the deployment, $name its name",
    )
    is_enabled = models.BooleanField(
        "enabled", default=True, help_text="Offered for rules; the load of one that is not is unknown"
    )

    class Meta:
        ordering = ("name",)
        verbose_name_plural = "Prometheus queries"

    def __str__(self) -> str:
        return self.title

    def of(self, deployment_id: str, name: str) -> str:
        """Return the expression for a deployment, whose id and name have no character that PromQL would read."""
        return self.expression.replace("$deployment", deployment_id).replace("$name", name)


class ScalingRule(models.Model):
    """A metric, and how much of it one replica is for; of several rules the one that needs most replicas counts."""

    deployment = models.ForeignKey("Deployment", on_delete=models.CASCADE, related_name="scaling_rules", editable=False)
    metric = models.CharField(max_length=11, choices=ScalingMetric.choices)
    target = models.FloatField(help_text="For one replica")
    query = models.CharField(max_length=MAX_EXPRESSION_LENGTH, blank=True, help_text="Name of a Prometheus query")
    is_paused = models.BooleanField("paused", default=False, help_text="It does not count")

    class Meta:
        ordering = ("id",)
        constraints = (
            models.CheckConstraint(condition=Q(target__gt=0), name="scaling_rule_target_positive"),
            models.UniqueConstraint(fields=("deployment", "metric", "query"), name="scaling_rule_unique"),
        )

    def __str__(self) -> str:
        return f"{self.get_metric_display()}, {self.target:g} a replica"
