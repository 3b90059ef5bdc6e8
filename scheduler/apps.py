"""Django configuration of the scheduler app."""

from django.apps import AppConfig


class SchedulerConfig(AppConfig):
    """Places waiting sessions on hosts; has no models of its own."""

    name = "scheduler"
