"""Django configuration of the endpoints app."""

from django.apps import AppConfig
from django.core.checks import register


class EndpointsConfig(AppConfig):
    """Apps of sessions: launcher, share links, ports, routes."""

    name = "endpoints"

    def ready(self) -> None:
        """Connect the signals that end access to apps and assign ports, and register the checks of the settings."""
        # models can be imported only once all apps are loaded
        from endpoints import checks
        from endpoints.handoff import signals  # noqa: F401
        from endpoints.routing import signals as port_signals  # noqa: F401

        for check in checks.CHECKS:
            register(check)
