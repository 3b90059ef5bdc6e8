"""`manage.py add_host NAME`: lets a GPU host join."""

from argparse import ArgumentParser
from difflib import get_close_matches
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from accounts import audit
from hostaccess import roles, services
from hostaccess.models import HostAccess
from resources.accelerators.kinds import NVIDIA, kind_problem
from resources.models import ResourceGroup


class Command(BaseCommand):
    """Prints a token with which the host joins once."""

    help = "Let a GPU host of this name join, and print the token that it takes; a host that joins again is replaced."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="of the host, such as gpu7")
        parser.add_argument("--group", default=settings.COMPUTE_HOST_GROUP, help="resource group that a new host joins")
        parser.add_argument("--create-group", action="store_true", help="make the group if there is none of this name")
        parser.add_argument("--accelerator", default=NVIDIA, help="kind that the new group lends, such as amd.com/gpu")

    def handle(self, *args: Any, name: str, group: str, create_group: bool, accelerator: str, **options: Any) -> None:
        """Print what is to be run on the host."""
        if problem := kind_problem(accelerator):
            raise CommandError(problem)
        if not create_group:
            self._require_group(group)
        try:
            roles.ensure_grants()  # before the transaction, which would lock all tables together
            with audit.act(None, "add host") as made:
                invitation = services.add(name, group, accelerator=accelerator)
                made.append(HostAccess.objects.get(name=name))
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        except roles.RolesUnavailableError as error:
            raise CommandError(str(error)) from error
        if problem := services.reach_problem():
            self.stderr.write(f"Hosts on other machines cannot work yet. {problem}.")
        self.stdout.write(
            f"On {name}, with the package of this version of the platform, within an hour and once:\n\n"
            f"    gpuplatform-manage install host --join {settings.COMPUTE_PUBLIC_URL} {invitation.token}\n\n"
            "or in a clone of it:\n\n"
            f"    .venv/bin/python manage.py join {settings.COMPUTE_PUBLIC_URL} --token {invitation.token}\n"
        )

    @staticmethod
    def _require_group(name: str) -> None:
        """Refuse a group that there is not: a misspelt name would be one with this host alone."""
        names = list(ResourceGroup.objects.values_list("name", flat=True))
        if name in names or name == settings.COMPUTE_HOST_GROUP:  # which the first host makes
            return
        similar = get_close_matches(name, names, n=3) or names[:3]
        there = f"There are: {', '.join(similar)}. " if similar else ""
        raise CommandError(f"There is no resource group {name!r}. {there}To make it, add --create-group.")
