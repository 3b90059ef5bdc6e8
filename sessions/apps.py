"""Django configuration of the sessions app."""

from django.apps import AppConfig


class SessionsConfig(AppConfig):
    """The life of a compute session."""

    name = "sessions"
    label = "compute"  # django.contrib.sessions owns the label "sessions"
    verbose_name = "Compute sessions"
