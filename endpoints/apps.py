"""Django configuration of the endpoints app."""

from django.apps import AppConfig
from django.core.checks import register


class EndpointsConfig(AppConfig):
    """Apps of sessions: launcher, share links, ports, routes."""

    name = "endpoints"

    def ready(self) -> None:
        """Connect the signals that end access to apps, and register the checks of the settings."""
        from endpoints import checks  # models can be imported only once all apps are loaded

        for check in checks.CHECKS:
            register(check)
