"""Django configuration of the sessions app."""

from django.apps import AppConfig


class SessionsConfig(AppConfig):
    """Sessions: models, lifecycle, services, API and terminal."""

    name = "sessions"
    label = "compute"  # django.contrib.sessions owns the label "sessions"
    verbose_name = "Compute sessions"

    def ready(self) -> None:
        """Connect the signals of disabled accounts and of revoked hosts."""
        from sessions.revocation import account_ends, host_revocation  # noqa: F401  # models are there once all apps are loaded
