"""Django configuration of the webhooks app."""

from django.apps import AppConfig


class WebhooksConfig(AppConfig):
    """Webhooks of users."""

    name = "webhooks"

    def ready(self) -> None:
        """Register the system check."""
        from webhooks import checks  # noqa: F401  # importing registers it
