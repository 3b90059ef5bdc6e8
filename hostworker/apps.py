"""Django configuration of the hostworker app."""

from django.apps import AppConfig


class HostworkerConfig(AppConfig):
    """The process on every GPU host."""

    name = "hostworker"
