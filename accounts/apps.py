"""Django configuration of the accounts app."""

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    """Users, policies and SSH keys."""

    name = "accounts"
