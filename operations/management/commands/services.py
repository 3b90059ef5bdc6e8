"""`manage.py services`: status, start, stop, restart and logs of the platform's services on this machine."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils.timesince import timesince
from django.utils.timezone import now

from operations.services import acts as service_acts
from operations.services.base import DEFAULT_LINES, MAX_LINES, ServiceAction, ServiceControlError, ServiceState
from operations.services.local import local_manager


class Command(BaseCommand):
    """Needs neither database nor Redis, which may be what is to be started."""

    help = "Show the platform's services on this machine, start, stop or restart one, or show its log."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        choices = ("status", *(action.value for action in ServiceAction), "logs")
        parser.add_argument("action", nargs="?", default="status", choices=choices, help="default: %(default)s")
        parser.add_argument("service", nargs="?", default="", help="its name; without one: all, but for logs")
        parser.add_argument("--lines", type=int, default=DEFAULT_LINES, help="of the log; default: %(default)s")
        parser.add_argument("--json", action="store_true", help="print the states as JSON")

    def handle(self, *args: Any, action: str, service: str, lines: int, **options: Any) -> None:
        """Do it; raise CommandError with the cause where it cannot be done."""
        if not 0 < lines <= MAX_LINES:
            raise CommandError(f"--lines: from 1 to {MAX_LINES}")
        try:
            manager = local_manager()
            if action == "status":
                states = [state for state in manager.states() if service in ("", state.name)]
                self._show(manager.title, states, as_json=options["json"])
            elif action == "logs":
                if not service:
                    raise CommandError("name the service whose log to show")
                self.stdout.write("\n".join(manager.log(service, lines)))
            else:
                names = [service] if service else [state.name for state in manager.states()]
                for name in names:
                    service_acts.act(manager, ServiceAction(action), name, actor=None)
        except ServiceControlError as error:
            raise CommandError(str(error)) from None

    def _show(self, title: str, states: list[ServiceState], *, as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps([state.as_json() for state in states], indent=1))
            return
        self.stdout.write(f"Services of this machine, by {title}:")
        for state in states:
            since = f"for {timesince(state.since, now())}" if state.since else ""
            restarts = f"{state.restarts} restarts" if state.restarts else ""
            self.stdout.write(
                f"  {state.name:<12} {state.status:<9} {state.pid or '':<8} {since:<24} {restarts}".rstrip()
            )
