"""Django configuration of the sessions app."""

from django.apps import AppConfig


class SessionsConfig(AppConfig):
    """Sessions: models, lifecycle, services, pages, API and terminal."""

    name = "sessions"
    label = "compute"  # django.contrib.sessions owns the label "sessions"
    verbose_name = "Compute sessions"
