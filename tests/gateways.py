"""Real gateways as processes of their own, on the database of the test run."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from tests.far_machine import FarMachine
from tests.ports import free_port
from tests.wait import SECONDS, until
from tests.workers import database_url

ROOT = Path(__file__).resolve().parent.parent
ESTABLISHED = "01"  # as the kernel writes it


@dataclass
class Gateway:
    """A gateway that can be ended and started again at its address; its output goes to `log`."""

    host: str
    address: tuple[str, int]
    environment: dict[str, str]
    log: Path
    on: Sequence[str] = ()
    process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The id of its first process."""
        if self.process is None:
            raise RuntimeError("The gateway does not run.")
        return self.process.pid

    @property
    def url(self) -> str:
        """Where it is reached."""
        return f"http://{self.address[0]}:{self.address[1]}"

    def start(self) -> None:
        """Start it and return once it listens."""
        variables = os.environ | {
            "DATABASE_URL": database_url(),
            "COMPUTE_VAR_DIR": str(settings.COMPUTE_VAR_DIR),
            "COMPUTE_WEB_PROCESSES": "1",
            "COMPUTE_HOST_NAME": self.host,
            "COMPUTE_GATEWAY_ADDRESS": f"{self.address[0]}:{self.address[1]}",
            **self.environment,
        }
        with self.log.open("ab") as output:
            command = [*self.on, sys.executable, "manage.py", "gateway"]
            self.process = subprocess.Popen(command, cwd=ROOT, env=variables, stdout=output, stderr=output)
        until(self.listens)

    def listens(self) -> bool:
        """Return whether it takes connections; fail with its output when it has ended."""
        if self.process is None or self.process.poll() is not None:
            raise AssertionError(f"the gateway has ended:\n{self.log.read_text()}")
        with socket.socket() as probe:
            return probe.connect_ex(self.address) == 0

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it as a supervisor would, or with SIGKILL as a crash would."""
        if self.process:
            self.process.send_signal(how)
            self.process.wait(SECONDS)
            self.process = None

    def open_connections(self) -> int:
        """Return how many connections its callers have."""
        port = f":{self.address[1]:04X}"
        rows = Path(f"/proc/{self.pid}/net/tcp").read_text().splitlines()[1:]
        fields = (row.split() for row in rows)  # number, local address, remote address, state
        return sum(local.endswith(port) and state == ESTABLISHED for _, local, _, state, *_ in fields)


@contextmanager
def running_gateway(
    host: str, log: Path, *, machine: FarMachine | None = None, **environment: str
) -> Iterator[Gateway]:
    """Run `manage.py gateway` for the host `host`, here or on `machine`, until the block ends.

    `environment` replaces settings.
    """
    address, on = (machine.address, machine.on_it) if machine else ("127.0.0.1", ())
    gateway = Gateway(host=host, address=(address, free_port()), environment=environment, log=log, on=on)
    try:
        gateway.start()
        yield gateway
    finally:
        gateway.end()
