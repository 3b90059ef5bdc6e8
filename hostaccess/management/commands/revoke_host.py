"""`manage.py revoke_host NAME`: takes its credentials from a GPU host."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from accounts import audit
from hostaccess import services
from hostaccess.redis_users import RedisUsersUnavailableError
from hostaccess.roles import RolesUnavailableError
from resources.models import Host


class Command(BaseCommand):
    """Ends the host's connections and all its rights."""

    help = "Take its database role, Redis users and key from a host and end its connections, at once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="of the host")

    def handle(self, *args: Any, name: str, **options: Any) -> None:
        """Say what has become of it."""
        try:
            is_revoked = services.revoke(name)
        except (RolesUnavailableError, RedisUsersUnavailableError) as error:
            raise CommandError(f"{error} Run this command again.") from error
        if not is_revoked:
            raise CommandError(f"There are no credentials of a host {name}.")
        audit.record(None, "revoke host", Host.objects.filter(name=name).first() or Host(name=name), {})
        self.stdout.write(
            f"Host {name} has no access any more. It is cordoned, its sessions cannot be reached, and end as those of "
            "a lost host do. "
            "Passwords of registries that it may have read are to be changed at the registries."
        )
