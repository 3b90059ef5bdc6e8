"""Django configuration of the scheduler app."""

from django.apps import AppConfig


class SchedulerConfig(AppConfig):
    """Decides which waiting session starts where; owns no tables."""

    name = "scheduler"
