"""The processes of a platform, each by itself as systemd runs them, and clients that work while they are replaced."""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import requests

from operations.machine.address import address_from
from operations.supervisor import processes
from operations.supervisor.supervisor import Command
from tests.migrated import fill_database
from tests.platform import ROOT
from tests.ports import free_port
from tests.wait import SECONDS, until

PAUSE_SECONDS: Final = 0.05
POLL_SECONDS: Final = 0.2  # between two looks at a session: the load is to be of sessions
START_SECONDS: Final = 4 * SECONDS  # for processes that start beside others which start too
SET_UP: Final = """
from gpuplatform.bootstrap import installation
from gpuplatform.bootstrap.demo import demo
from tests.factories import make_image
demo.create(installation.logins_file())
make_image(reference="example/python:1")
"""
ADMIN: Final = "admin@example.org"
LAUNCH: Final[dict[str, Any]] = {"image": "example/python:1", "cpu": 1, "memory": "1GiB"}
AGAIN: Final = {409, 502, 503, 504}  # a client sends the request again, as it does where nothing responds


class Fleet:
    """Processes by their names in `operations.supervisor.processes`, from the code in one folder; logs beside data."""

    def __init__(self, environment: Mapping[str, str], tree: Path = ROOT) -> None:
        self.environment = dict(environment)
        self._tree = tree
        self._trees: dict[str, Path] = {}
        self._var_dir = Path(environment["COMPUTE_VAR_DIR"])
        self._var_dir.mkdir(parents=True, exist_ok=True)
        where = address_from(environment["COMPUTE_HTTP_ADDRESS"])
        commands = processes.commands(where, self._var_dir, {}, has_ssh=True)
        self._commands = {command.name: command for command in commands}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.image = str(LAUNCH["image"])

    def add(self, name: str, command: str, tree: Path | None = None, **environment: str) -> None:
        """Know another process: a management command with settings of its own, and maybe code of its own."""
        self._trees[name] = tree or self._tree
        words = (self._commands["web"].arguments[0], "manage.py", command)
        self._commands[name] = Command(name=name, arguments=words, environment=environment)

    def pid(self, name: str) -> int:
        """Return the id of a process."""
        return self._running[name].pid

    @property
    def url(self) -> str:
        """Where the pages and the API are."""
        return self.url_of("web")

    def url_of(self, name: str) -> str:
        """Return where a web server is."""
        settings = self.environment | dict(self._commands[name].environment)
        return f"http://{settings['COMPUTE_HTTP_ADDRESS']}"

    def password(self, email: str) -> str:
        """Return the password of a log-in of the demo."""
        found: dict[str, str] = json.loads((self._var_dir / "demo-logins.json").read_text())
        return found[email]

    def manage(self, *arguments: str, check: bool = True, beside: str = "web") -> str:
        """Run a management command to its end, which must be a success unless `check` is false; return its output.

        It has the code and settings of the process `beside` which it is run.
        """
        command = [self._commands["web"].arguments[0], "manage.py", *arguments]
        environment = self.environment | dict(self._commands[beside].environment)
        tree = self._trees.get(beside, self._tree)
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0 or not check, done.stdout + done.stderr
        return done.stdout

    def start(self, *names: str) -> None:
        """Start these processes, and wait for none."""
        for name in names:
            command = self._commands[name]
            with self.log(name).open("ab") as output:
                self._running[name] = subprocess.Popen(
                    list(command.arguments),
                    cwd=self._trees.get(name, self._tree),
                    env=self.environment | dict(command.environment),
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )

    def signal(self, name: str, how: signal.Signals) -> None:
        """Send a signal to a process."""
        self._running[name].send_signal(how)

    def stop(self, name: str) -> None:
        """Stop a process as systemd does, and wait for its end."""
        process = self._running.pop(name)
        process.send_signal(signal.SIGTERM)
        process.wait(SECONDS)

    def restart(self, name: str) -> None:
        """Stop a process and start it, as `systemctl restart` does."""
        self.stop(name)
        self.start(name)

    def reload(self, name: str) -> None:
        """Have the processes of a web server or gateway replaced one after another, as `systemctl reload` does."""
        before = server_processes(self.pid(name))
        self.signal(name, signal.SIGHUP)
        until(lambda: (now := server_processes(self.pid(name))) and not now & before, seconds=START_SECONDS)

    def stop_all(self) -> None:
        """Stop what runs; kill what has not ended after a minute."""
        for process in self._running.values():
            process.send_signal(signal.SIGTERM)
        for name, process in self._running.items():
            try:
                process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise AssertionError(f"{name} does not end:\n{self.text(name)}") from None
        self._running.clear()

    def ended(self) -> list[str]:
        """Return the names of processes that have ended by themselves."""
        return [name for name, process in self._running.items() if process.poll() is not None]

    def log(self, name: str) -> Path:
        """Return the file with the output of a process."""
        return self._var_dir / f"{name}.log"

    def text(self, name: str) -> str:
        """Return the last output of a process."""
        return self.log(name).read_text(errors="replace")[-4000:]

    def wait_until_served(self) -> None:
        """Wait for database and Redis to be well as the web process sees them."""
        until(lambda: self._is_served(), seconds=START_SECONDS)

    def wait_for_hosts(self, count: int) -> None:
        """Wait until so many hosts take sessions: before, a launch is refused."""
        client = SteadyClient(self.url, ADMIN, self.password(ADMIN))
        until(
            lambda: [host["status"] for host in client.get("hosts/")["results"]].count("READY") == count,
            seconds=START_SECONDS,
        )

    def _is_served(self) -> bool:
        assert not self.ended(), "".join(self.text(name) for name in self.ended())
        try:
            return requests.get(f"{self.url}/healthz", timeout=SECONDS).status_code == 200
        except requests.RequestException:
            return False


class SteadyClient:
    """Speaks the API, and repeats what got no response or 503, with the same idempotency key."""

    def __init__(self, url: str, email: str, password: str) -> None:
        self._url = f"{url}/api/v1"
        self._headers: dict[str, str] = {}
        self.longest_outage_s = 0.0
        self.repeated = 0
        self.token = str(self.post("auth/token/", email=email, password=password)["token"])
        self._headers["Authorization"] = f"Token {self.token}"

    def get(self, path: str) -> Any:
        """Return the body of a GET."""
        return self._send("GET", path, None)

    def post(self, path: str, **body: Any) -> Any:
        """Return the body of the response to a POST, which takes effect once."""
        return self._send("POST", path, body)

    def launch(self, **asked: Any) -> str:
        """Return the id of a session, with one CPU, that runs."""
        session: str = self.post("sessions/", cpu=1, **asked)[0]["id"]
        until(lambda: self.get(f"sessions/{session}/")["status"] == "RUNNING")
        return session

    def _send(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        headers = self._headers | ({"Idempotency-Key": uuid4().hex} if self._headers and body is not None else {})
        began = time.monotonic()
        while (response := self._attempt(method, path, body, headers)) is None or response.status_code in AGAIN:
            self.repeated += 1
            assert time.monotonic() - began < SECONDS, f"{method} {path}: {response and response.text}"
            time.sleep(PAUSE_SECONDS)
        self.longest_outage_s = max(self.longest_outage_s, time.monotonic() - began)
        assert response.ok, f"{method} {path}: {response.status_code} {response.text[:500]}"
        return response.json() if response.content else None

    def _attempt(
        self, method: str, path: str, body: dict[str, Any] | None, headers: dict[str, str]
    ) -> requests.Response | None:
        try:
            return requests.request(method, f"{self._url}/{path}", json=body, headers=headers, timeout=SECONDS)
        except (requests.ConnectionError, requests.Timeout):
            return None


@dataclass
class SessionLoad:
    """Threads that launch a session, see it run, end it, and see it end, over and over, until `finish`."""

    url: str
    email: str
    password: str
    launch: Mapping[str, Any]
    threads: int = 3
    started: list[str] = field(default_factory=list)  # ids of all sessions that were confirmed to be launched
    longest_outage_s: float = 0.0  # of one request, until it had its response
    longest_start_s: float = 0.0  # of one session, from its confirmation until it was seen to run
    repeated: int = 0  # requests

    def __post_init__(self) -> None:
        self._stopped = threading.Event()
        self._errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._guarded, daemon=True) for _ in range(self.threads)]
        for thread in self._threads:
            thread.start()

    def wait_for(self, more: int) -> None:
        """Wait until so many more sessions have been launched than there are now."""
        count = len(self.started) + more
        until(lambda: self._errors or len(self.started) >= count, seconds=START_SECONDS)
        self._raise()

    def finish(self) -> None:
        """Let each thread see its session end, and stop. Raises what went wrong in any."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(2 * SECONDS)
        self._raise()
        assert not any(thread.is_alive() for thread in self._threads)

    def _raise(self) -> None:
        if self._errors:
            raise self._errors[0]

    def _guarded(self) -> None:
        try:
            self._work(SteadyClient(self.url, self.email, self.password))
        except BaseException as error:  # raised in the test's own thread
            self._errors.append(error)

    def _work(self, client: SteadyClient) -> None:
        while not self._stopped.is_set():
            (session,) = client.post("sessions/", **self.launch)
            self.started.append(session["id"])
            began = time.monotonic()
            self._see(client, session["id"], "RUNNING")
            self.longest_start_s = max(self.longest_start_s, time.monotonic() - began)
            client.post(f"sessions/{session['id']}/terminate/")
            self._see(client, session["id"], "TERMINATED")
            self.longest_outage_s = max(self.longest_outage_s, client.longest_outage_s)
            self.repeated += client.repeated
            client.repeated = 0

    def _see(self, client: SteadyClient, session: str, status: str) -> None:
        def is_there() -> bool:
            time.sleep(POLL_SECONDS)
            return bool(client.get(f"sessions/{session}/")["status"] == status)

        until(is_there, seconds=START_SECONDS)


def server_processes(pid: int) -> set[int]:
    """Return the processes that serve below a web server's or gateway's: its children that map the memory of counts."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {int(child) for child in children if "counters" in memory_maps(int(child))}


def memory_maps(pid: int) -> str:
    """Return what the process has mapped into its memory; "" once it has ended."""
    try:
        return Path(f"/proc/{pid}/maps").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


@contextmanager
def in_memory_fleet(folder: Path, **settings: str) -> Iterator[Fleet]:
    """Run a platform on the servers of the settings until the block ends; its one host has the in-memory engine."""
    variables = {
        "COMPUTE_VAR_DIR": str(folder / "var"),
        "COMPUTE_HTTP_ADDRESS": f"127.0.0.1:{free_port()}",
        "COMPUTE_WEB_PROCESSES": "1",
        "COMPUTE_API_REQUESTS_PER_MINUTE": "0",
        "COMPUTE_HOST_NAME": f"fleet-{uuid4().hex[:8]}",
        "COMPUTE_HOST_CPU": "8",
        "COMPUTE_SIMULATED_GPUS": "",
        "COMPUTE_RUNTIME": "hostworker.runtime.memory.runtime.MemoryRuntime",
        "COMPUTE_FIREWALL": "false",
        "COMPUTE_SHARED_ENGINE": "true",  # in memory, beside a platform that lends this machine
        "DEBUG": "true",  # static files by their plain names
        "SECRET_KEY": "only-for-tests-" + "0" * 50,
        "DJANGO_SETTINGS_MODULE": "tests.settings_without_debug",
    }
    fleet = Fleet(os.environ | variables | settings)
    try:
        if not fill_database(fleet.environment["DATABASE_URL"]):
            fleet.manage("migrate", "-v", "0")
        fleet.manage("shell", "-v", "0", "-c", SET_UP)
        fleet.start("web", "scheduler", "beat", "host")
        fleet.wait_until_served()
        fleet.wait_for_hosts(1)
        yield fleet
    finally:
        fleet.stop_all()
