"""Revisions: what the replicas of a deployment run. They are never changed; a trigger refuses it."""

from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from accounts.models import User
from deployments.models.deployment import Deployment
from deployments.models.variant import RuntimeVariant
from folders.models import Folder
from resources.models import Image


class HealthKind(models.TextChoices):
    """How a replica is asked whether it can serve."""

    HTTP = "http", "HTTP"  # GET of a path, answered with a status below 400
    TCP = "tcp", "TCP"  # its port accepts a connection


class Revision(models.Model):
    """What a replica runs: image, command, resources, folders and health check, as they were when it was made."""

    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="revisions", editable=False)
    number = models.PositiveIntegerField(editable=False)
    image = models.ForeignKey(Image, on_delete=models.PROTECT, related_name="revisions", editable=False)
    variant = models.ForeignKey(
        RuntimeVariant, on_delete=models.PROTECT, null=True, blank=True, related_name="revisions", editable=False
    )
    command = models.TextField(editable=False, help_text="Its main process, as a line of the shell")
    port = models.PositiveIntegerField(editable=False, help_text="On which it serves, in its container")
    environment = models.JSONField(default=dict, blank=True, editable=False, help_text="Environment variables")
    cpu = models.PositiveIntegerField("CPU cores", editable=False)
    memory = models.PositiveBigIntegerField("memory (bytes)", editable=False)
    shared_memory = models.PositiveBigIntegerField("shared memory (bytes)", editable=False)
    fgpu = models.PositiveIntegerField("milli-fGPU", default=0, editable=False)
    gpu_memory = models.PositiveBigIntegerField(
        "GPU memory (bytes)",
        default=0,
        db_default=0,
        editable=False,
        help_text="In place of a share: the least of that",
    )
    min_fgpu = models.PositiveIntegerField(
        "least milli-fGPU",
        default=0,
        db_default=0,
        editable=False,
        help_text="With GPU memory: the least that a replica gets",
    )
    health_kind = models.CharField(max_length=4, choices=HealthKind.choices, default="http", editable=False)
    health_path = models.CharField(max_length=255, default="/", editable=False)
    start_seconds = models.PositiveIntegerField(default=300, editable=False, help_text="Until it must be healthy")
    interval_seconds = models.PositiveIntegerField(default=5, editable=False, help_text="Between two probes")
    timeout_seconds = models.PositiveIntegerField(default=2, editable=False, help_text="Of a probe")
    retries = models.PositiveSmallIntegerField(default=3, editable=False, help_text="Probes in a row that may fail")
    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+", editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    note = models.CharField(max_length=200, blank=True, editable=False)

    class Meta:
        ordering = ("-number",)
        constraints = (
            models.UniqueConstraint(fields=("deployment", "number"), name="revision_number_unique"),
            models.CheckConstraint(condition=Q(number__gte=1), name="revision_numbers_begin_at_1"),
            models.CheckConstraint(condition=Q(port__gte=1024, port__lte=65535), name="revision_port_exists"),
            models.CheckConstraint(condition=~Q(command=""), name="revision_has_a_command"),
            models.CheckConstraint(
                condition=Q(interval_seconds__gte=1, timeout_seconds__gte=1, retries__gte=1)
                & Q(timeout_seconds__lte=F("interval_seconds")),
                name="revision_health_check_possible",
            ),
        )

    def __str__(self) -> str:
        return f"{self.deployment_id} revision {self.number}"

    @property
    def share(self) -> int:
        """The milli-fGPU that each of its replicas has; 0 where these follow from its GPU memory."""
        return 0 if self.gpu_memory else self.fgpu

    @property
    def asked_fgpu(self) -> int:
        """The milli-fGPU that were asked for; with GPU memory, the least of them."""
        return self.min_fgpu if self.gpu_memory else self.fgpu


class RevisionMount(models.Model):
    """A data folder that the replicas of a revision mount."""

    revision = models.ForeignKey(Revision, on_delete=models.CASCADE, related_name="mounts", editable=False)
    folder = models.ForeignKey(
        Folder,
        on_delete=models.SET_NULL,
        null=True,
        related_name="+",
        editable=False,
        help_text="Empty: it was deleted",
    )
    folder_name = models.CharField(max_length=64, editable=False, help_text="As it was when the revision was made")
    path = models.CharField(max_length=255, editable=False, help_text="In the container, absolute")
    is_read_only = models.BooleanField("read only", default=True, editable=False)
    is_model = models.BooleanField("model folder", default=False, editable=False, help_text="Where $MODEL_PATH points")

    class Meta:
        ordering = ("path",)
        constraints = (
            models.UniqueConstraint(fields=("revision", "path"), name="revision_mount_path_unique"),
            models.UniqueConstraint(
                fields=("revision",), condition=Q(is_model=True), name="revision_has_one_model_folder"
            ),
        )

    def __str__(self) -> str:
        return f"{self.folder_name} at {self.path}"
