"""Django configuration of the deployments app."""

from django.apps import AppConfig


class DeploymentsConfig(AppConfig):
    """Deployments: revisions, replicas, their health, and tokens for their addresses."""

    name = "deployments"

    def ready(self) -> None:
        """Connect the signals that end access."""
        from deployments import signals  # noqa: F401  # models can be imported only once all apps are loaded
