"""Django configuration of the resources app."""

from django.apps import AppConfig
from django.core.checks import register

from resources.checks import CHECKS, HOST_TAG


class ResourcesConfig(AppConfig):
    """Hosts, GPUs, resource groups and images."""

    name = "resources"

    def ready(self) -> None:
        """Register the system checks of this host's settings."""
        for check in CHECKS:
            register(check, HOST_TAG)
