"""Django configuration of the accounts app."""

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    """People: who they are and what they may use."""

    name = "accounts"
