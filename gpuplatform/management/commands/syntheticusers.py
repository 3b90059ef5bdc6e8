"""`manage.py syntheticusers`: users of a demo who launch and end sessions until stopped."""

import time
from argparse import ArgumentParser
from random import Random
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError
from django.db import Error, close_old_connections

from accounts.models import User
from gpuplatform.bootstrap.demo.cluster_data import DOMAIN
from gpuplatform.bootstrap.demo.synthetic_users import SyntheticUsers
from resources.models import Host, HostStatus

STEP_SECONDS: Final = 1.0


class Command(BaseCommand):
    """Acts for the users of the demo's domain alone."""

    help = "Let the users of the demo of a cluster work: they launch, end and cancel sessions."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--pressure", type=float, default=1.15, help="of what there is, how much they ask for")

    def handle(self, *args: Any, pressure: float, **options: Any) -> None:
        """Run until a signal."""
        users = list(User.objects.filter(email__endswith=f"@{DOMAIN}").select_related("policy"))
        if not users:
            raise CommandError("there are no users of a demo; `make demo-cluster` makes them")
        while not Host.objects.filter(status=HostStatus.READY).exists():
            time.sleep(STEP_SECONDS)
        crowd = SyntheticUsers(users, pressure, Random())  # noqa: S311  # nobody is to be kept from guessing
        crowd.launch_until_full()
        begun = time.monotonic()
        while True:
            time.sleep(STEP_SECONDS)
            now = time.monotonic()
            try:
                close_old_connections()
                crowd.act(now, now - begun)
            except Error as error:
                self.stderr.write(f"the database does not respond: {error}")
            begun = now
