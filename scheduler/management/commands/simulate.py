"""`manage.py simulate`: replay sessions under other rules, hosts or fGPU per GPU."""

from argparse import ArgumentParser
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from resources.models import ResourceGroup
from scheduler.core.types import PlacementPolicyName, QueueOrder, Snapshot
from scheduler.history import MAX_REPLAYED_SESSIONS, recorded
from scheduler.simulation import trace
from scheduler.simulation.comparison import Comparison, Scenario, compare
from scheduler.simulation.simulator import Job


class Command(BaseCommand):
    """Replays recorded sessions, or a trace, as it was and under a scenario."""

    help = "Replay recorded sessions, or a trace, under other rules with a virtual clock, and compare."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the options that choose the sessions and the scenario."""
        parser.add_argument("--nodes", type=Path, help="hosts of a trace: sn, cpu_milli, memory_mib, gpu, model")
        parser.add_argument("--pods", type=Path, help="its sessions: cpu_milli, memory_mib, num_gpu, gpu_milli, ...")
        parser.add_argument("--hosts", type=int, help="only so many hosts of the trace: all of openb's are never full")
        parser.add_argument("--days", type=int, default=30, help="of recorded history (default 30)")
        parser.add_argument("--group", help="one resource group of the recorded history")
        parser.add_argument(
            "--limit",
            type=int,
            default=MAX_REPLAYED_SESSIONS,
            help=f"most sessions to replay (default {MAX_REPLAYED_SESSIONS})",
        )
        parser.add_argument(
            "--policy",
            choices=[placement_policy.value for placement_policy in PlacementPolicyName],
            help="where sessions are placed",
        )
        parser.add_argument("--order", choices=[order.value for order in QueueOrder], help="who is served first")
        parser.add_argument("--add-hosts", type=int, default=0, help="more hosts, each like the group's largest")
        parser.add_argument("--fgpu-per-gpu", type=int, help="into how many fGPU a GPU is cut")

    def handle(self, *args: Any, **options: Any) -> None:
        """Replay twice and print both results. Raises CommandError for files or groups that do not exist."""
        if (options["nodes"] is None) != (options["pods"] is None):
            raise CommandError("--nodes and --pods go together.")
        if options["add_hosts"] < 0 or (options["fgpu_per_gpu"] is not None and options["fgpu_per_gpu"] < 1):
            raise CommandError("Hosts are added, and a GPU is cut into at least 1 fGPU.")
        world, jobs = self._world(options)
        if not jobs or not world.hosts:
            raise CommandError("There is nothing to replay: no sessions, or no hosts that take any.")
        scenario = Scenario(
            placement_policy=PlacementPolicyName(options["policy"]) if options["policy"] else None,
            queue_order=QueueOrder(options["order"]) if options["order"] else None,
            add_hosts=options["add_hosts"],
            fgpu_per_gpu=options["fgpu_per_gpu"],
        )
        self.stdout.write(f"{len(jobs)} sessions on {len(world.hosts)} hosts")
        self._print(compare(world, jobs, scenario))

    def _world(self, options: dict[str, Any]) -> tuple[Snapshot, list[Job]]:
        if options["nodes"] is not None:
            try:
                hosts, pods = trace.read_trace(options["nodes"], options["pods"])
            except (OSError, KeyError, ValueError) as error:
                raise CommandError(f"The trace cannot be read: {error}") from error
            hosts, pods = hosts[: options["hosts"]], pods[: options["limit"]]
            if said := trace.missing_text(hosts, pods):
                self.stdout.write(said)
            return trace.world(hosts, pods)
        group = None
        if options["group"] is not None:
            group = ResourceGroup.objects.filter(name=options["group"]).first()
            if group is None:
                raise CommandError(f"There is no resource group {options['group']!r}.")
        return recorded(timezone.now() - timedelta(days=options["days"]), group, options["limit"])

    def _print(self, found: Comparison) -> None:
        self.stdout.write(f"{'':<16}{'as it was':>20}{'changed':>20}")
        for row in found.rows:
            by = "" if row.percent is None else f"{row.percent:+d} %"
            self.stdout.write(f"{row.name:<16}{row.before:>20}{row.after:>20}{by:>10}")
        self.stdout.write(found.summary)
