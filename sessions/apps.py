"""Django configuration of the sessions app."""

from django.apps import AppConfig
from django.core.checks import register


class SessionsConfig(AppConfig):
    """Sessions: models, lifecycle, services, pages, API and terminal."""

    name = "sessions"
    label = "compute"  # django.contrib.sessions owns the label "sessions"
    verbose_name = "Compute sessions"

    def ready(self) -> None:
        """Connect what ends access to apps, and register the checks of what leads to them."""
        from endpoints import checks, signals  # noqa: F401  # the models must be there first

        for check in checks.CHECKS:
            register(check)
