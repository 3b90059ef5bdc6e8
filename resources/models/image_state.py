"""What becomes of images: their presence on hosts, their builds and pulls."""

from django.db import models
from django.utils import timezone

from resources.models.images import Image
from resources.models.machines import Host


class HostImage(models.Model):
    """The fact that the engine of a host has an image, as the host last said."""

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="images")
    image = models.ForeignKey(Image, on_delete=models.CASCADE, related_name="on_hosts")
    size = models.PositiveBigIntegerField("size (bytes)")
    seen_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("host", "image")
        constraints = (models.UniqueConstraint(fields=("host", "image"), name="host_image_unique"),)

    def __str__(self) -> str:
        return f"{self.image} on {self.host}"


class BuildState(models.TextChoices):
    """How far the build of an image is."""

    QUEUED = "QUEUED", "queued"
    BUILDING = "BUILDING", "building"
    READY = "READY", "ready"
    FAILED = "FAILED", "failed"


class ImageBuild(models.Model):
    """The build of an image of the catalogue. An image without one comes from a registry, or was entered by hand."""

    image = models.OneToOneField(Image, on_delete=models.CASCADE, primary_key=True, related_name="build")
    state = models.CharField(max_length=8, choices=BuildState.choices, default=BuildState.QUEUED.value)
    is_usable = models.BooleanField(
        "usable", default=False, help_text="Sessions can run it: it was built, perhaps from older inputs"
    )
    position = models.PositiveSmallIntegerField(default=0, help_text="Order in the queue")
    step = models.PositiveSmallIntegerField(default=0, help_text="Of the Dockerfile; 0: the base is being prepared")
    steps = models.PositiveSmallIntegerField(default=0)
    started_at = models.DateTimeField(null=True, blank=True)
    last_duration = models.DurationField(null=True, blank=True, help_text="How long its last whole build took")
    problem = models.TextField(blank=True, help_text="Why it failed, with the last lines of its output")

    class Meta:
        ordering = ("position", "pk")

    def __str__(self) -> str:
        return f"build of {self.image}"


class PullState(models.TextChoices):
    """How far a requested pull of an image to a host is."""

    WAITING = "WAITING", "waiting for the host"
    PULLING = "PULLING", "pulling"
    DONE = "DONE", "done"
    FAILED = "FAILED", "failed"


class ImagePull(models.Model):
    """The last pull of an image to a host that an administrator asked for; sessions pull without one."""

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="pulls")
    image = models.ForeignKey(Image, on_delete=models.CASCADE, related_name="pulls")
    state = models.CharField(max_length=8, choices=PullState.choices, default=PullState.WAITING.value)
    detail = models.CharField(max_length=300, blank=True, help_text="Progress, or why it failed")
    requested_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("host", "image")
        constraints = (models.UniqueConstraint(fields=("host", "image"), name="image_pull_unique"),)

    def __str__(self) -> str:
        return f"pull of {self.image} to {self.host}"
