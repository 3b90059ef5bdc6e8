"""Django configuration of the endpoints app."""

from django.apps import AppConfig


class EndpointsConfig(AppConfig):
    """Apps of sessions: launcher, share links, ports, routes."""

    name = "endpoints"
