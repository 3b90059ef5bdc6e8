"""`manage.py simulatedhosts`: many hosts without containers in one process."""

import asyncio
import signal
import threading
from argparse import ArgumentParser
from typing import Any, Final

from django.core.management.base import BaseCommand

from hostworker.simulated.fleet import register, simulate
from hostworker.simulated.gateway import HOST, SimulatedGateway
from hostworker.simulated.runtime import SimulatedContainers
from resources.amounts.units import bytes_from
from resources.gpus import simulated as simulated_gpus
from resources.gpus.discovery import Machine, simulated_devices

GROUP: Final = "cluster"
GPUS: Final = "4x24GiB numa=0 nvlink=4,4x24GiB numa=1 nvlink=4"


class Command(BaseCommand):
    """Register hosts and act for them until stopped; their sessions go on with the next start."""

    help = "Run many simulated hosts in one process, for demonstrations and load: nothing runs in their sessions."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--hosts", type=int, default=50)
        parser.add_argument("--gpus", default=GPUS, help="of each host, as COMPUTE_SIMULATED_GPUS declares them")
        parser.add_argument("--cpu", type=int, default=128, help="cores of each host")
        parser.add_argument("--memory", default="1t", help="of each host")
        parser.add_argument("--group", action="append", help="of hosts that are not known yet; several take turns")
        parser.add_argument("--prefix", default="sim-", help="of the hosts' names")

    def handle(self, *args: Any, hosts: int, gpus: str, cpu: int, memory: str, **options: Any) -> None:
        """Run until SIGTERM or Ctrl-C."""
        registry = SimulatedContainers()
        topology = simulated_gpus.topology(simulated_gpus.declared(gpus))

        def machine(name: str) -> Machine:
            devices = simulated_devices(gpus, name)
            return Machine(cpu=cpu, memory=bytes_from(memory), devices=devices, architecture="amd64", topology=topology)

        names = [f"{options['prefix']}{number:04}" for number in range(1, hosts + 1)]
        made = register(names, machine, options["group"] or [GROUP], _serve(SimulatedGateway(registry)))
        fleet = simulate(made, registry)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, frame: setattr(fleet, "should_stop", True))
        fleet.begin()
        self.stdout.write(f"{hosts} simulated hosts of {len(topology.indexes)} GPUs")
        try:
            fleet.run()
        finally:
            fleet.end()


def _serve(gateway: SimulatedGateway) -> str:
    """Serve the gateway in a thread of its own; return its URL."""
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(gateway.serve, HOST, 0))
    threading.Thread(target=loop.run_forever, name="gateway", daemon=True).start()
    return f"http://{HOST}:{server.sockets[0].getsockname()[1]}"
