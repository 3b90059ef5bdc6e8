"""Host names that administrators give to deployments."""

from django.conf import settings
from django.db import models
from django.utils import timezone

from deployments.models.deployment import Deployment

MAX_HOST_NAME_LENGTH = 253


class DeploymentHost(models.Model):
    """A host name that leads to a deployment, beside that of its label."""

    name = models.CharField("host name", primary_key=True, max_length=MAX_HOST_NAME_LENGTH)
    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="hosts")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+", editable=False
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ("name",)
        verbose_name = "host name of a deployment"
        verbose_name_plural = "host names of deployments"

    def __str__(self) -> str:
        return self.name
