"""Django configuration of the arrays app."""

from django.apps import AppConfig


class ArraysConfig(AppConfig):
    """Job arrays: their tasks, and the sessions that run them."""

    name = "arrays"
