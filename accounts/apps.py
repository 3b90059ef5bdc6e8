"""Django configuration of the accounts app."""

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    """Users, policies and SSH keys."""

    name = "accounts"

    def ready(self) -> None:
        """Connect the signals that end an account's access and keep its address."""
        from accounts.second_factors import demand as demanded_factors  # noqa: F401  # models can be imported only once all apps are loaded
