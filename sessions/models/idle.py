"""Rules on idle sessions, the warnings that they gave, and the figures on which they rest."""

from datetime import timedelta
from typing import ClassVar, Final

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone

from accounts.models import Project, ResourcePolicy
from resources.models import ResourceGroup
from sessions.idle_rules import MAX_SPAN, MIN_SPAN, IdleAction, IdleLimits
from sessions.models.session import Session

SPAN_VALIDATORS: Final = [MinValueValidator(limit_value=MIN_SPAN), MaxValueValidator(limit_value=MAX_SPAN)]
PERCENT_VALIDATORS: Final = [MinValueValidator(1), MaxValueValidator(100)]
ACTION_WORDS: Final = {
    IdleAction.END.value: "end it",
    IdleAction.PARK.value: "park it; where that is not possible, end it",
}


class IdleRuleQuerySet(models.QuerySet["IdleRule"]):
    """Questions about idle rules."""

    def enabled(self) -> "IdleRuleQuerySet":
        """Return those that are on."""
        return self.filter(is_enabled=True)


class IdleRule(models.Model):
    """What is done with idle sessions of some policies and groups. Of several rules, the first that is met acts."""

    name = models.CharField(max_length=64, unique=True)
    is_enabled = models.BooleanField(
        "enabled", default=False, help_text="Look first at what it would have ended last week"
    )
    policies = models.ManyToManyField(
        ResourcePolicy,
        blank=True,
        related_name="idle_rules",
        help_text="Of the owners of the sessions, or of their projects; none: of all",
    )
    projects = models.ManyToManyField(
        Project, blank=True, related_name="idle_rules", help_text="Of the sessions; none: of all, and of none"
    )
    resource_groups = models.ManyToManyField(
        ResourceGroup, blank=True, related_name="idle_rules", help_text="In which the sessions run; none: in all"
    )
    idle_timeout = models.DurationField(
        null=True,
        blank=True,
        validators=SPAN_VALIDATORS,
        help_text="Of interactive sessions: no use by terminal, SSH or apps for this long, and nothing computed",
    )
    low_use_window = models.DurationField(
        null=True,
        blank=True,
        validators=SPAN_VALIDATORS,
        help_text="It used less than the limits below on average over this long, whether somebody looks or not",
    )
    low_use_cpu_percent = models.PositiveSmallIntegerField(
        "low use of CPU (%)", null=True, blank=True, validators=PERCENT_VALIDATORS, help_text="Of its cores"
    )
    low_use_gpu_percent = models.PositiveSmallIntegerField(
        "low use of GPU (%)",
        null=True,
        blank=True,
        validators=PERCENT_VALIDATORS,
        help_text="Of its share; no matter without a GPU. Where CPU has a limit too, it must use less of both.",
    )
    warning = models.DurationField(
        default=timedelta(minutes=30),
        validators=[MinValueValidator(limit_value=timedelta(minutes=1)), MaxValueValidator(limit_value=MAX_SPAN)],
        help_text="The owner is warned, and the session goes on for this long, or for good if it is used again",
    )
    max_snooze = models.DurationField(
        default=timedelta(0),
        validators=[MinValueValidator(limit_value=timedelta(0)), MaxValueValidator(limit_value=MAX_SPAN)],
        help_text="How long owners may put that off in all each time they are warned; 0: not at all",
    )
    action = models.CharField(
        max_length=8,
        choices=list(ACTION_WORDS.items()),
        default=IdleAction.END.value,
        help_text="With an idle session",
    )

    objects: ClassVar[IdleRuleQuerySet] = IdleRuleQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering = ("name",)
        constraints = (
            models.CheckConstraint(
                condition=Q(idle_timeout__isnull=False) | Q(low_use_window__isnull=False),
                name="idle_rule_has_a_limit",
                violation_error_message="Give an idle timeout, or a window of low use.",
            ),
            models.CheckConstraint(
                condition=Q(low_use_window=None)
                ^ (Q(low_use_cpu_percent__isnull=False) | Q(low_use_gpu_percent__isnull=False)),
                name="idle_rule_low_use_is_whole",
                violation_error_message="Low use takes a window, and a limit for CPU, GPU or both.",
            ),
        )

    def __str__(self) -> str:
        return self.name

    def limits(self) -> IdleLimits:
        """Return the limits as a value for `sessions.idle_rules`."""
        return IdleLimits(
            idle_timeout=self.idle_timeout,
            low_use_window=self.low_use_window,
            low_use_cpu_percent=self.low_use_cpu_percent,
            low_use_gpu_percent=self.low_use_gpu_percent,
        )

    def window(self) -> timedelta:
        """Return the longer of its windows."""
        return max(span for span in (self.idle_timeout, self.low_use_window) if span is not None)


class IdleNotice(models.Model):
    """A running session is idle by a rule: its owner was warned, and it ends at `ends_at` unless that changes."""

    session = models.OneToOneField(Session, on_delete=models.CASCADE, primary_key=True, related_name="idle_notice")
    rule = models.ForeignKey(IdleRule, on_delete=models.CASCADE, related_name="notices")
    cause = models.CharField(max_length=200, help_text="In words")
    warned_at = models.DateTimeField(default=timezone.now)
    ends_at = models.DateTimeField()
    snoozed = models.DurationField(default=timedelta(0), help_text="By how much its owner has put the end off")

    class Meta:
        indexes = (models.Index(fields=("ends_at",), name="idle_notice_ends_at"),)

    def __str__(self) -> str:
        return f"{self.session_id} at {self.ends_at}"


class UsagePeriod(models.Model):
    """What a session used on average within five minutes, kept for as long as rules look back. Null is unknown."""

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="usage_periods", db_index=False)
    at = models.DateTimeField(help_text="When the five minutes begin")
    cpu_milli = models.PositiveIntegerField("CPU (thousandths of a core)", null=True)
    cpu_percent = models.FloatField("CPU (% of its cores)", null=True)
    fgpu = models.PositiveIntegerField("milli-fGPU", help_text="That it held")
    gpu_percent = models.FloatField("GPU (% of its share)", null=True)
    network_bytes = models.PositiveBigIntegerField("received and sent (bytes per second)", null=True)
    was_used = models.BooleanField(help_text="By terminal, SSH or an app")
    is_idle = models.BooleanField(help_text="Neither used nor computing, and all of that is known")

    class Meta:
        constraints = (models.UniqueConstraint(fields=("session", "at"), name="usage_period_once"),)
        indexes = (models.Index(fields=("at",), name="usage_period_at"),)

    def __str__(self) -> str:
        return f"{self.session_id} from {self.at}"


class UsageDay(models.Model):
    """What was measured of a session on one day (UTC); kept for reports."""

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="usage_days", db_index=False)
    day = models.DateField(db_index=True)
    measured_seconds = models.PositiveIntegerField(help_text="In which its CPU is known")
    idle_seconds = models.PositiveIntegerField(help_text="In which it was neither used nor computed")
    cpu_milli_seconds = models.BigIntegerField("CPU used (thousandths of a core, seconds)")
    fgpu_milli_seconds = models.BigIntegerField("GPU held (milli-fGPU seconds)", help_text="While its use is known")
    fgpu_milli_seconds_idle = models.BigIntegerField("of that idle", help_text="While it used less than 1 %")
    fgpu_milli_seconds_used = models.BigIntegerField("of that used")

    class Meta:
        constraints = (models.UniqueConstraint(fields=("session", "day"), name="usage_day_once"),)

    def __str__(self) -> str:
        return f"{self.session_id} on {self.day}"
