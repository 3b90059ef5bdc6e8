"""Django configuration of the imports app."""

from django.apps import AppConfig


class ImportsConfig(AppConfig):
    """Imports of repositories, notebooks and archives, and the credentials for private ones."""

    name = "imports"

    def ready(self) -> None:
        """Register the system check."""
        from imports import checks  # noqa: F401  # importing registers it
