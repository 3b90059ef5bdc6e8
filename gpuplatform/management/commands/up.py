"""`manage.py up`: set everything up and run the platform on this machine."""

import asyncio
import signal
import time
from argparse import ArgumentParser
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, close_old_connections
from django.utils import timezone

from gpuplatform.bootstrap import installation
from gpuplatform.bootstrap.demo import demo
from operations import embedded
from operations.machine import address, one_at_a_time
from operations.machine.progress import Progress, SetupError
from operations.supervisor import processes
from operations.supervisor.supervisor import READY_SECONDS, STOP_SIGNALS, Supervisor
from resources.models import Host, HostStatus


class Command(BaseCommand):
    """Runs until a signal stops it or one of its processes ends; the sessions' containers go on either way."""

    help = "Set the platform up on this machine and run it; Ctrl-C stops it. Data and running sessions are kept."
    requires_system_checks: list[str] = []  # the static folders that one check misses are made here

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--setup-only", action="store_true", help="do everything but run")
        parser.add_argument(
            "--no-images", action="store_true", help="with --setup-only: leave session images to the image builder"
        )

    def handle(self, *args: Any, setup_only: bool, no_images: bool, **options: Any) -> None:
        """Set up and run; raise CommandError with the cause and what to do."""
        for number in STOP_SIGNALS:
            signal.signal(number, signal.default_int_handler)  # so that what was started is stopped on the way out
        progress = Progress(self.stdout)  # type: ignore[arg-type]  # OutputWrapper writes and flushes like a stream
        try:
            with progress.errors_explained(), one_at_a_time.hold(Path(settings.COMPUTE_VAR_DIR) / "up.lock"):
                self._set_up_and_run(progress, setup_only, no_images)
        except SetupError as problem:
            raise CommandError(str(problem)) from None
        except KeyboardInterrupt:
            raise CommandError("stopped before the platform ran; `make up` goes on where it was") from None

    def _set_up_and_run(self, progress: Progress, setup_only: bool, no_images: bool) -> None:
        started = time.monotonic()
        where = address.address_from(settings.COMPUTE_HTTP_ADDRESS)
        if not setup_only:
            _require_free(where, address.HTTP_SETTING)
            if settings.COMPUTE_SSH_ADDRESS:
                _require_free(
                    address.address_from(settings.COMPUTE_SSH_ADDRESS, address.SSH_SETTING), address.SSH_SETTING
                )
        installation.prepare_machine(progress, for_tests=False, runs_here=not setup_only)
        with installation.own_services(progress, take_over=True):
            installation.fill(progress)
            if setup_only and not no_images:
                installation.build_images(progress, self.stdout)  # type: ignore[arg-type]
            host_environment = {} if setup_only else installation.simulated_gpus(progress)
            progress.say(f"Everything is set up ({time.monotonic() - started:.0f} s)")
            if setup_only:
                return
            self._run(progress, where, host_environment)
        progress.say("Stopped. Data are kept, and running sessions run on; `make up` finds them again.")

    def _run(self, progress: Progress, where: address.Address, host_environment: dict[str, str]) -> None:
        logins = demo.logins(installation.logins_file())
        has_ssh = bool(settings.COMPUTE_SSH_ADDRESS)
        commands = processes.commands(where, Path(settings.COMPUTE_VAR_DIR), host_environment, has_ssh=has_ssh)

        def announce(ready: bool) -> None:
            for line in _announcement(where, logins, ready):
                progress.say(line)

        supervisor = Supervisor(
            commands,
            folder=Path(settings.BASE_DIR),
            output=self.stdout,  # type: ignore[arg-type]
            services=installation.supervised_services(),
            control=embedded.supervisor_socket(Path(settings.COMPUTE_VAR_DIR)),
        )
        started_at = timezone.now()
        ended = asyncio.run(supervisor.run(lambda: _is_ready(where, started_at), announce))
        if ended:
            raise CommandError(f"the platform stopped: {ended}")


def _require_free(where: address.Address, setting: str) -> None:
    if not where.is_free(setting):
        raise SetupError(
            f"port {where.port} of {where.host} is taken. Stop the program that listens there, or set "
            f"{setting} in .env to another address."
        )


def _is_ready(where: address.Address, started_at: datetime) -> bool:
    """Return whether the web process is healthy and this host takes sessions, by a heartbeat since `started_at`."""
    if address.health(where, settings.ALLOWED_HOSTS) != 200:
        return False
    close_old_connections()
    try:
        return Host.objects.filter(
            name=settings.COMPUTE_HOST_NAME, status=HostStatus.READY, heartbeat_at__gte=started_at
        ).exists()
    except DatabaseError:
        return False


def _announcement(where: address.Address, logins: list[demo.Login], ready: bool) -> list[str]:
    """Return the lines to print once all is ready, or has taken too long."""
    if not ready:
        return [
            f"WARNING: the site or this host's worker is not ready after {READY_SECONDS:.0f} s; the lines above say "
            f"why, and so does `make doctor`. The address is {where.url}"
        ]
    people = [f"  {login.email:<22} {login.password}" for login in logins]
    heading = ["", f"GPU Platform is ready: {where.url}"]
    return [*heading, *(["Sign in with one of the demo log-ins:", *people] if people else []), "Ctrl-C stops it.", ""]
