"""Runtime variants: programs that serve models, as data that administrators change."""

from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models

VARIANT_NAME = "[a-z0-9][a-z0-9._-]{0,31}"


class RuntimeVariant(models.Model):
    """A program that serves models: what a revision runs unless it says otherwise.

    Its command is a line of the shell, in which $PORT is the port of the revision, and $MODEL_PATH where its model
    folder is mounted.
    """

    name = models.CharField(max_length=32, unique=True, validators=[RegexValidator(f"^{VARIANT_NAME}$")])
    title = models.CharField(max_length=64)
    command = models.TextField(blank=True, help_text="A line of the shell; $PORT and $MODEL_PATH are set")
    port = models.PositiveIntegerField(default=8000, validators=[MinValueValidator(1024), MaxValueValidator(65535)])
    health_path = models.CharField(max_length=255, default="/health", help_text="Empty: that it listens is enough")
    environment = models.JSONField(default=dict, blank=True, help_text="Environment variables")
    is_enabled = models.BooleanField("enabled", default=True, help_text="Offered for new revisions")

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.title
