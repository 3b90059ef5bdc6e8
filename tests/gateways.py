"""Real gateways as processes of their own, on the database of the test run."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from tests.wait import until
from tests.workers import database_url

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Gateway:
    """A gateway that can be ended and started again at its address; its output goes to `log`."""

    host: str
    port: int
    environment: dict[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it is reached."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and return once it listens."""
        variables = os.environ | {
            "DATABASE_URL": database_url(),
            "COMPUTE_VAR_DIR": str(settings.COMPUTE_VAR_DIR),
            "COMPUTE_HOST_NAME": self.host,
            "COMPUTE_GATEWAY_ADDRESS": f"127.0.0.1:{self.port}",
            **self.environment,
        }
        with self.log.open("ab") as output:
            command = [sys.executable, "manage.py", "gateway"]
            self.process = subprocess.Popen(command, cwd=ROOT, env=variables, stdout=output, stderr=output)
        until(self.listens)

    def listens(self) -> bool:
        """Return whether it takes connections; fail with its output when it has ended."""
        if self.process is None or self.process.poll() is not None:
            raise AssertionError(f"the gateway has ended:\n{self.log.read_text()}")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it as a supervisor would, or with SIGKILL as a crash would."""
        if self.process:
            self.process.send_signal(how)
            self.process.wait(30)
            self.process = None

    def open_connections(self) -> int:
        """Return how many connections it has established, to callers and to its engine."""
        assert self.process
        links = (os.readlink(entry) for entry in Path(f"/proc/{self.process.pid}/fd").iterdir())
        return sum(link.startswith("socket:") for link in links)


@contextmanager
def running_gateway(host: str, log: Path, **environment: str) -> Iterator[Gateway]:
    """Run `manage.py gateway` for the host `host` until the block ends; `environment` replaces settings."""
    gateway = Gateway(host=host, port=free_port(), environment=environment, log=log)
    try:
        gateway.start()
        yield gateway
    finally:
        gateway.end()


def free_port() -> int:
    """Return a port of the loopback that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
