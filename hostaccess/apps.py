"""Django configuration of the hostaccess app."""

from django.apps import AppConfig
from django.core.checks import Tags, register
from django.db.models.signals import post_migrate


class HostAccessConfig(AppConfig):
    """What GPU hosts authenticate with, and what that lets them do."""

    name = "hostaccess"
    verbose_name = "Access of hosts"

    def ready(self) -> None:
        """Check for poolers, and bring the privileges of joined hosts in line with the tables after each migration."""
        from hostaccess.pooler import check_pooler
        from hostaccess.roles import refresh_privileges

        register(check_pooler, Tags.database)
        post_migrate.connect(refresh_privileges, sender=self)  # once, after all apps were migrated
