"""Django configuration of the accounts app."""

from django.apps import AppConfig
from django.core.checks import register


class AccountsConfig(AppConfig):
    """Users, policies and SSH keys."""

    name = "accounts"

    def ready(self) -> None:
        """Connect the signals that end an account's access and keep its address; set the clock of codes."""
        # models can be imported only once all apps are loaded
        from accounts.second_factors import code_clock, demand  # noqa: F401
        from accounts.signing_in import access_loss, addresses, checks  # noqa: F401

        code_clock.use()
        register(checks.check_login_hours)
        register(checks.check_breached_passwords)
