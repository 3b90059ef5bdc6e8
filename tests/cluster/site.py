"""All processes of a cluster, and how each is made anew."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, Thread
from typing import Final

import requests

from operations.supervisor.processes import CELERY
from tests.cluster.isolation import MEMORY, NAMES_FILE
from tests.cluster.machines import NETWORK, PLATFORM, Engine, Machine, make_network
from tests.cluster.processes import Knobs, Process, descendants, signal_all
from tests.cluster.services import Broker, Database
from tests.crashing import CRASH_FILE
from tests.wait import until

FIRST_WEB_PORT: Final = 8000
DATABASE, BROKER = 2, 3  # last parts of their addresses
KEEP_UP_S: Final = 1.0  # between looks after processes that have ended
GATEWAY_PORT: Final = 8010
CORES: Final = 32  # of each host, whatever this machine has
RUNTIME: Final = "tests.crashing.CrashingRuntime"
SCHEDULER: Final = "worker -Q scheduler --pool solo --concurrency 1 --without-gossip --without-mingle -l INFO"
MANAGE: Final = (CELERY[0], "manage.py")


_names_lock = Lock()


class Host:
    """A host: its machine, its engine, its worker and its gateway, with credentials of its own."""

    def __init__(self, name: str, number: int, logs: Path, *, live_restore: bool) -> None:
        self.name = name
        self.machine = Machine(name, number)
        self.engine = Engine(self.machine, logs, live_restore=live_restore)
        self.crash_file = MEMORY / f"{name}.crash"
        self.knobs = Knobs(name)
        self._services = {f"{NETWORK}.{DATABASE}": f"postgres.{name}.test", f"{NETWORK}.{BROKER}": f"redis.{name}.test"}
        self._logs = logs
        self.worker: Process
        self.gateway: Process

    def join(self, variables: dict[str, str], common: dict[str, str]) -> None:
        """Take the credentials that the host has been given."""
        address = f"{self.machine.address}:{GATEWAY_PORT}"
        own = {
            "COMPUTE_VAR_DIR": str(MEMORY / self.name / "var"),
            "COMPUTE_ARBITER_DIR": str(MEMORY / self.name / "arbiter"),
            "COMPUTE_DOCKER_URL": self.engine.url,
            "COMPUTE_GATEWAY_ADDRESS": address,
            "COMPUTE_GATEWAY_URL": f"http://{address}",
            CRASH_FILE: str(self.crash_file),
            **self.knobs.environment,
            "TEST_CPUS": str(CORES),
            "SECRET_KEY": "",
            "COMPUTE_APPS_KEYS": "",
        }
        for address, service in self._services.items():
            variables = {name: value.replace(address, service) for name, value in variables.items()}
        self._say_names(are_known=True)
        environment = common | own | variables
        on = self.machine.on_it
        self.worker = Process(f"{self.name}-worker", (*MANAGE, "hostworker"), environment, self._logs, on)
        self.gateway = Process(f"{self.name}-gateway", (*MANAGE, "gateway"), environment, self._logs, on)

    @contextmanager
    def without_names(self) -> Iterator[None]:
        """Let no name be resolved on it until the block ends."""
        self._say_names(are_known=False)
        try:
            yield
        finally:
            self._say_names(are_known=True)

    def _say_names(self, *, are_known: bool) -> None:
        """Write which services its processes find by their names, in place: others read the same file."""
        with _names_lock:
            others = [line for line in NAMES_FILE.read_text().splitlines() if not line.endswith(f".{self.name}.test")]
            own = [f"{address} {service}" for address, service in self._services.items()] if are_known else []
            NAMES_FILE.write_text("".join(f"{line}\n" for line in [*others, *own]))

    def start(self) -> None:
        """Start worker and gateway."""
        self.gateway.start()
        self.worker.start()

    def lose_power(self) -> None:
        """End everything on the host at once, without a word to anybody."""
        self.machine.unplug()
        for process in (self.worker, self.gateway):
            process.kill()
        self.engine.kill(with_containers=True)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let all of it stand still until the block ends, as a virtual machine does that is moved."""
        tops = [process.pid for process in (self.worker, self.gateway, self.engine.process)]
        pids = [*tops, *(pid for top in tops for pid in descendants(top)), *self.engine.contained()]
        signal_all(pids, signal.SIGSTOP)
        try:
            yield
        finally:
            signal_all(pids, signal.SIGCONT)

    def boot(self) -> None:
        """Switch it on again."""
        self.machine.plug_in()
        self.engine.start()
        self.start()


class Site:
    """A platform with two processes of each kind, and its hosts."""

    def __init__(self, logs: Path, *, hosts: int) -> None:
        """Make machines, engines, database and broker; nothing of the platform runs yet."""
        self.logs = logs
        logs.mkdir(parents=True, exist_ok=True)
        make_network()
        self.database = Database(Machine("postgres", DATABASE), logs)
        self.broker = Broker(Machine("redis", BROKER), logs)
        self.hosts = [Host(f"gpu{n}", 10 + n, logs, live_restore=n % 2 == 0) for n in range(1, hosts + 1)]
        self.locks = {name: Lock() for name in [*(host.name for host in self.hosts), "database", "broker", "platform"]}
        self.web: list[Process] = []
        self.schedulers: list[Process] = []
        self.beat: Process

    @property
    def urls(self) -> list[str]:
        """Where the web processes are reached."""
        return [f"http://{PLATFORM}:{FIRST_WEB_PORT + n}" for n in range(2)]

    def environment(self) -> dict[str, str]:
        """Return the settings of the platform's processes."""
        return os.environ | {
            "SECRET_KEY": "only-for-this-cluster-" + "0" * 40,
            "DEBUG": "true",
            "DJANGO_SETTINGS_MODULE": "gpuplatform.settings",
            "ALLOWED_HOSTS": "*",
            "DATABASE_URL": self.database.url,
            "REDIS_URL": self.broker.url,
            "COMPUTE_VAR_DIR": str(MEMORY / "var"),
            "COMPUTE_HOST_NAME": "platform",
            "COMPUTE_HTTP_ADDRESS": f"{PLATFORM}:{FIRST_WEB_PORT}",
            "COMPUTE_HTTPS": "false",
            "COMPUTE_WEB_PROCESSES": "1",
            "COMPUTE_API_REQUESTS_PER_MINUTE": "100000",
            "COMPUTE_BACKUP_HOURS": "0",
            "COMPUTE_RUNTIME": RUNTIME,
            "COMPUTE_SIMULATED_GPUS": "4x8GiB",
            "COMPUTE_PIN_CPUS": "false",
            "COMPUTE_HOST_MEMORY": "16g",
            "COMPUTE_DISK_RESERVE": "200m",
            "COMPUTE_SANDBOX_POOL": "1",
            "COMPUTE_SHARED_ENGINE": "false",
            "COMPUTE_LOG_LEVEL": "INFO",
            "PYTHONWARNINGS": "ignore",
        }

    def start_services(self) -> None:
        """Start database, broker and engines."""
        self.database.start()
        self.broker.start()
        for host in self.hosts:
            host.engine.process.start()
        for host in self.hosts:
            host.engine.start()

    def start_platform(self) -> None:
        """Start web processes, schedulers and beat, and return once both web processes respond."""
        environment = self.environment()
        for number in range(2):
            address = f"{PLATFORM}:{FIRST_WEB_PORT + number}"
            own = environment | {"COMPUTE_HTTP_ADDRESS": address}
            self.web.append(Process(f"web{number}", (*MANAGE, "web", "--address", address), own, self.logs))
            words = (*CELERY, *SCHEDULER.split(), "-n", f"scheduler{number}@%h")
            self.schedulers.append(Process(f"scheduler{number}", words, environment, self.logs))
        schedule = str(MEMORY / "celerybeat-schedule")
        words = (*CELERY, "beat", "--schedule", schedule, "-l", "WARNING")
        self.beat = Process("beat", words, environment, self.logs)
        for process in (*self.web, *self.schedulers, self.beat):
            process.start()
        Thread(target=self._keep_up, daemon=True).start()
        until(lambda: all(responds(url) for url in self.urls))

    def _keep_up(self) -> None:
        """Start again what ends by itself, such as a worker that starts while there is no database."""
        while True:
            time.sleep(KEEP_UP_S)
            for process in (*self.web, *self.schedulers, self.beat, *self._of_hosts()):
                process.keep_up()

    def _of_hosts(self) -> Iterator[Process]:
        for host in self.hosts:
            yield from (host.worker, host.gateway)


def responds(url: str) -> bool:
    """Return whether a web process serves requests."""
    try:
        return requests.get(f"{url}/healthz", timeout=5).ok
    except requests.RequestException:
        return False
