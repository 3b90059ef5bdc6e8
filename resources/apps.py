"""Django configuration of the resources app."""

from django.apps import AppConfig
from django.core.checks import register
from django.db.models.signals import post_migrate

from resources import versions
from resources.checks import CHECKS, HOST_TAG


class ResourcesConfig(AppConfig):
    """Hosts, GPUs, resource groups and images."""

    name = "resources"

    def ready(self) -> None:
        """Register the system checks of this host's settings and of the database, and note who migrates that."""
        for check in CHECKS:
            register(check, HOST_TAG)
        register(versions.check_version, versions.VERSION_TAG)
        post_migrate.connect(versions.note_version, sender=self)  # once, after all apps were migrated
