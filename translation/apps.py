"""Configuration of the Django app."""

from django.apps import AppConfig


class TranslationConfig(AppConfig):
    """Has no tables: template filters and the command that updates the catalogues."""

    name = "translation"
