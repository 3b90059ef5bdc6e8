"""`manage.py democluster`: a platform with simulated hosts and users of its own, for demonstrations and what-if."""

import asyncio
import signal
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, close_old_connections

from gpuplatform.bootstrap import installation
from gpuplatform.bootstrap.demo import cluster_data as demo_cluster_data
from gpuplatform.bootstrap.demo import demo
from operations.machine import address, one_at_a_time
from operations.machine.progress import Progress, SetupError
from operations.supervisor import processes
from operations.supervisor.supervisor import STOP_SIGNALS, Supervisor
from operations.supervisor.supervisor import Command as Process
from resources.models import Host, HostStatus

PLATFORM: Final = {"web", "scheduler", "beat"}  # of the processes of `make up`


class Command(BaseCommand):
    """Runs until a signal stops it; `make demo-cluster` gives it a folder and a database of its own."""

    help = "Run a platform with simulated hosts and users; Ctrl-C stops it, and it goes on with the next start."
    requires_system_checks: list[str] = []  # the static folders that one check misses are made here

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--hosts", type=int, default=50)
        parser.add_argument("--users", type=int, default=60)
        parser.add_argument("--pressure", type=float, default=1.15, help="of what there is, how much users ask for")

    def handle(self, *args: Any, hosts: int, users: int, pressure: float, **options: Any) -> None:
        """Set up and run; raise CommandError with the cause and what to do."""
        for number in STOP_SIGNALS:
            signal.signal(number, signal.default_int_handler)
        progress = Progress(self.stdout)  # type: ignore[arg-type]  # OutputWrapper writes and flushes like a stream
        where = address.address_from(settings.COMPUTE_HTTP_ADDRESS)
        try:
            with progress.errors_explained(), one_at_a_time.hold(Path(settings.COMPUTE_VAR_DIR) / "up.lock"):
                if not where.is_free():
                    raise SetupError(f"port {where.port} is taken; set {address.HTTP_SETTING} to another address")
                with installation.own_services(progress, take_over=True):
                    _fill(progress, users)
                    self._run(progress, where, hosts, pressure)
        except SetupError as problem:
            raise CommandError(str(problem)) from None
        except KeyboardInterrupt:
            raise CommandError("stopped") from None

    def _run(self, progress: Progress, where: address.Address, hosts: int, pressure: float) -> None:
        logins = demo.logins(installation.logins_file())
        supervisor = Supervisor(
            _processes(where, hosts, pressure),
            folder=Path(settings.BASE_DIR),
            output=self.stdout,  # type: ignore[arg-type]
            services=installation.supervised_services(),
        )

        def announce(ready: bool) -> None:
            state = "is ready" if ready else "is not ready yet, the lines above say why"
            lines = [f"The demo of a cluster of {hosts} SIMULATED hosts {state}: {where.url}"]
            for line in [
                "",
                *lines,
                *(f"  {each.email:<22} {each.password}" for each in logins),
                "Ctrl-C stops it.",
                "",
            ]:
                progress.say(line)

        if ended := asyncio.run(supervisor.run(lambda: _is_ready(where), announce)):
            raise CommandError(f"the demo stopped: {ended}")


def _fill(progress: Progress, users: int) -> None:
    installation.migrate_and_collect(progress)
    with progress.step("Users, groups and their past"):
        demo_cluster_data.create(users, installation.logins_file())


def _processes(where: address.Address, hosts: int, pressure: float) -> Sequence[Process]:
    usual = processes.commands(where, Path(settings.COMPUTE_VAR_DIR), {})
    groups = [f"--group={name}" for name in (demo_cluster_data.TRAINING, demo_cluster_data.CLASSROOM)]
    manage = (sys.executable, "manage.py")
    return [
        *(process for process in usual if process.name in PLATFORM),
        Process(name="hosts", arguments=(*manage, "simulatedhosts", f"--hosts={hosts}", *groups)),
        Process(name="users", arguments=(*manage, "syntheticusers", f"--pressure={pressure}")),
    ]


def _is_ready(where: address.Address) -> bool:
    """Return whether the web process is healthy and hosts take sessions."""
    if address.health(where, settings.ALLOWED_HOSTS) != 200:
        return False
    close_old_connections()
    try:
        return Host.objects.filter(status=HostStatus.READY).exists()
    except DatabaseError:
        return False
