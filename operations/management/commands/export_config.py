"""`manage.py export_config`: write the configuration as YAML."""

from typing import Any

from django.core.management.base import BaseCommand

from operations.configuration import services as configuration


class Command(BaseCommand):
    """Prints it, for a file that people can review and keep under version control."""

    help = (
        "Print policies, projects, registries, images, groups, GPU weights, presets, idle rules and storage roots, "
        "without secrets."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the configuration."""
        self.stdout.write(configuration.export(), ending="")
