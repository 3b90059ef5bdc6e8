"""Django configuration of the sessions app."""

from django.apps import AppConfig


class SessionsConfig(AppConfig):
    """The life of a compute session."""

    name = "sessions"
    label = "compute"  # django.contrib.sessions owns the label "sessions"
    verbose_name = "Compute sessions"

    def ready(self) -> None:
        """Connect what ends access to apps."""
        from sessions.endpoints import signals  # noqa: F401  # the models must be there first
