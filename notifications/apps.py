"""Django configuration of the notifications app."""

from django.apps import AppConfig


class NotificationsConfig(AppConfig):
    """Notifications of users, and announcements."""

    name = "notifications"

    def ready(self) -> None:
        """Connect the signals by which notifications are written."""
        from notifications import signals  # noqa: F401  # models can be imported only once all apps are loaded
