"""Django configuration of the sessions app."""

from django.apps import AppConfig


class SessionsConfig(AppConfig):
    """Sessions: models, lifecycle, services, API and terminal."""

    name = "sessions"
    label = "compute"  # django.contrib.sessions owns the label "sessions"
    verbose_name = "Compute sessions"

    def ready(self) -> None:
        """Connect the signal that cancels what waits for a disabled account."""
        from sessions import account_ends  # noqa: F401  # models can be imported only once all apps are loaded
