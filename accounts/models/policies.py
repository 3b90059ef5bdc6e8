"""The model of resource policies: limits of users and projects."""

from datetime import timedelta
from typing import Final

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from accounts.limits import PolicyLimits

DEFAULT_POLICY = "default"
DEFAULT_WEIGHT: Final = 100
MAX_CLUSTER_SIZE: Final = 64
DEFAULT_PARKED_TIME: Final = timedelta(days=14)
WEIGHT_VALIDATORS: Final = [MinValueValidator(1), MaxValueValidator(10_000)]
DEFAULT_LIMITS: Final = {
    "cpu": 8,
    "memory": 32 * 2**30,
    "fgpu": 4000,
    "max_sessions": 5,
    "max_pending": 20,
    "max_lifetime": timedelta(days=7),  # reservations and estimates need ends
    "max_extension": timedelta(hours=8),
    "disk_bytes": 50 * 2**30,
    "disk_files": 1_000_000,
    "storage_bytes": 50 * 2**30,
    "storage_files": 1_000_000,
}


class ResourcePolicy(models.Model):
    """Limits for the sessions of a user, or of a project's members, together. An empty limit means unlimited.

    A session of a project is bound by two policies, its owner's and the project's: see `accounts.policies`.
    """

    name = models.CharField(max_length=64, unique=True)
    cpu = models.PositiveIntegerField("CPU cores", null=True, blank=True)
    memory = models.PositiveBigIntegerField("memory (bytes)", null=True, blank=True)
    fgpu = models.PositiveIntegerField("milli-fGPU", null=True, blank=True, help_text="1000 is 1 fGPU")
    max_sessions = models.PositiveIntegerField("concurrent sessions", null=True, blank=True)
    max_pending = models.PositiveIntegerField("pending sessions", null=True, blank=True)
    max_per_launch = models.PositiveIntegerField(
        "sessions per launch", null=True, blank=True, help_text="Started by one click or request"
    )
    max_cluster_size = models.PositiveSmallIntegerField(
        "members of a cluster",
        default=MAX_CLUSTER_SIZE,
        db_default=MAX_CLUSTER_SIZE,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_CLUSTER_SIZE)],
        help_text="Of one session, each with its own amounts; 1: no clusters",
    )
    max_array_tasks = models.PositiveIntegerField(
        "tasks of an array", null=True, blank=True, help_text="Of one array, never more than COMPUTE_MAX_ARRAY_TASKS"
    )
    max_priority = models.SmallIntegerField(
        "highest priority",
        null=True,
        blank=True,
        validators=[MinValueValidator(0), MaxValueValidator(100)],
        help_text="Of a session, from 0 to 100; those that name none have 10, or this where it is lower",
    )
    max_lifetime = models.DurationField(
        null=True,
        blank=True,
        validators=[MinValueValidator(limit_value=timedelta(minutes=1))],
        help_text="A session ends this long after it started running",
    )
    max_extension = models.DurationField(
        default=timedelta(0),
        validators=[MinValueValidator(limit_value=timedelta(0))],
        help_text="Owners may let a running session go on for this much longer than its limits, in all; 0: not at all",
    )
    max_parked = models.PositiveIntegerField(
        "parked sessions", null=True, blank=True, default=3, help_text="At once; 0: sessions cannot be parked"
    )
    max_parked_time = models.DurationField(
        null=True,
        blank=True,
        default=DEFAULT_PARKED_TIME,
        validators=[MinValueValidator(limit_value=timedelta(minutes=1))],
        help_text="A parked session ends, and its files are deleted, this long after it was parked",
    )
    share_weight = models.PositiveSmallIntegerField(
        default=DEFAULT_WEIGHT,
        validators=WEIGHT_VALIDATORS,
        help_text="In resource groups of fair order: 200 is due twice as much as 100",
    )
    preemptible_only = models.BooleanField(
        "preemptible sessions only",
        default=False,
        help_text="Every session may be ended for others that wait, after a warning",
    )
    allow_sudo = models.BooleanField(default=False, help_text="Sessions may gain root inside their container")
    allow_public_apps = models.BooleanField(
        default=True, help_text="Apps of sessions may be opened to people without an account"
    )
    disk_bytes = models.PositiveBigIntegerField(
        "disk of a session (bytes)",
        null=True,
        blank=True,
        help_text="Written outside of data folders; beyond it writes fail, or the session ends",
    )
    disk_files = models.PositiveBigIntegerField(
        "disk of a session (files)",
        null=True,
        blank=True,
        help_text="Files and directories made outside of data folders; beyond it none can be made, or the session ends",
    )
    max_folders = models.PositiveIntegerField("data folders", null=True, blank=True, default=20)
    storage_bytes = models.PositiveBigIntegerField(
        "storage (bytes)", null=True, blank=True, help_text="Of a user's data folders together on each storage root"
    )
    storage_files = models.PositiveBigIntegerField(
        "storage (files)", null=True, blank=True, help_text="Of a user's data folders together on each storage root"
    )
    max_private_images = models.PositiveIntegerField("private images", null=True, blank=True, default=5)
    allow_conversion = models.BooleanField(
        default=False, help_text="Users may turn their own sessions into private images; superadmins always may"
    )
    allow_unlisted_images = models.BooleanField(
        default=False, help_text="Users may launch any image that their hosts can pull, by its full name"
    )
    require_second_factor = models.BooleanField(
        "demand a second factor",
        default=False,
        help_text="Who has none must set one up before anything else; of a project's policy, all of its members",
    )

    class Meta:
        ordering = ("name",)
        verbose_name_plural = "resource policies"

    def __str__(self) -> str:
        return self.name

    def limits(self) -> PolicyLimits:
        """Return the limits as a value for `accounts.limits`."""
        return PolicyLimits(
            cpu=self.cpu, memory=self.memory, fgpu=self.fgpu, sessions=self.max_sessions, pending=self.max_pending
        )

    @classmethod
    def default(cls) -> "ResourcePolicy":
        """Return the default policy of new users, created on first use; one or two queries."""
        policy, _ = cls.objects.get_or_create(
            name=DEFAULT_POLICY,
            defaults=DEFAULT_LIMITS,
        )
        return policy
