"""The two worlds in which the runtime contract is tested: how to make containers misbehave, engine by engine."""

import json
import secrets
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Protocol

import pytest
from docker.api import APIClient
from docker.errors import NotFound

from engine.containers import ATTEMPT_LABEL, HOST_LABEL, INSTALLATION_LABEL, SESSION_LABEL, container_name
from fgpu.mounts import BUILD
from hostworker.runtime.docker.runtime import DockerRuntime
from hostworker.runtime.memory.runtime import MemoryRuntime
from hostworker.runtime.sandboxes.containers import FREE, SANDBOX_LABEL
from hostworker.runtime.sandboxes.keeper import RECONCILE_SECONDS
from hostworker.runtime_protocol import ContainerSpec, ExecResult, Runtime
from tests.containers import remove_containers
from tests.exclusive import exclusive
from tests.execs import output_of
from tests.ports import process_number
from tests.tiny_image import ensure_tiny_image
from tests.wait import until

MIB = 1 << 20
ENGINE_URL = "unix:///var/run/docker.sock"


def new_session() -> str:
    """Return a session id that no other test uses."""
    return f"t{secrets.token_hex(8)}"


def make_spec(image: str, **overrides: Any) -> ContainerSpec:
    """Return a small container of a new session."""
    fields: dict[str, Any] = {
        "session": new_session(),
        "attempt": 1,
        "image": image,
        "cpu": 1,
        "memory_bytes": 64 * MIB,
        "shared_memory_bytes": 16 * MIB,
    }
    return ContainerSpec(**{**fields, **overrides})


class World(Protocol):
    """An engine with the runtime under test, and the faults that may happen to its containers."""

    image: str
    installation: str

    def runtime(self, installation: str = "", host: str = "here") -> Runtime:
        """Return another runtime on the same engine; of this world's installation if none is named."""

    def worker(self) -> Runtime:
        """Return the runtime that is this world's own host worker's; the same one for each test that shares a world."""

    def plant(self, session: str, attempt: int) -> None:
        """Put a running container without labels under the name of this key."""

    def is_planted(self, session: str, attempt: int) -> bool:
        """Tell whether that container is still there and running."""

    def end(self, session: str, attempt: int, exit_code: int) -> None:
        """Let the main process end by itself."""

    def run_out_of_memory(self, session: str, attempt: int) -> None:
        """Let the kernel kill the main process at the memory limit."""

    def kill_for_memory(self, session: str, attempt: int) -> None:
        """Let the kernel kill another process than the main one at the memory limit."""

    def lose_container(self, session: str, attempt: int) -> None:
        """Remove the container behind the runtime's back."""

    def write_log(self, session: str, attempt: int, line: str) -> None:
        """Let the container write a line."""

    def write_data(self, session: str, attempt: int, size_bytes: int) -> None:
        """Let the container write this much to its own layer."""

    def make_files(self, session: str, attempt: int, count: int) -> None:
        """Let the container make so many files in its own layer."""

    def set_exec_handler(self, exit_code: int, output: str) -> Sequence[str]:
        """Return the command of a program that ends so."""

    def clean_up(self) -> None:
        """Remove what the test left behind."""


class MemoryWorld:
    """A fresh in-memory engine."""

    image = "anything"

    def __init__(self) -> None:
        self.installation = new_session()
        self._url = f"memory://{self.installation}"

    def runtime(self, installation: str = "", host: str = "here") -> MemoryRuntime:
        return MemoryRuntime(installation or self.installation, host, self._url)

    def worker(self) -> MemoryRuntime:
        return self.runtime()

    def plant(self, session: str, attempt: int) -> None:
        stranger = self.runtime("no labels", "")
        stranger.create(make_spec(self.image, session=session, attempt=attempt))
        stranger.start(session, attempt)

    def is_planted(self, session: str, attempt: int) -> bool:
        return [state.phase for state in self.runtime("no labels", "").containers()] == ["running"]

    def end(self, session: str, attempt: int, exit_code: int) -> None:
        self.runtime().end(session, attempt, exit_code)

    def run_out_of_memory(self, session: str, attempt: int) -> None:
        self.runtime().end(session, attempt, out_of_memory=True)

    def kill_for_memory(self, session: str, attempt: int) -> None:
        self.runtime().kill_for_memory(session, attempt)

    def lose_container(self, session: str, attempt: int) -> None:
        self.runtime().lose_container(session, attempt)

    def write_log(self, session: str, attempt: int, line: str) -> None:
        self.runtime().write_log(session, attempt, line)

    def write_data(self, session: str, attempt: int, size_bytes: int) -> None:
        self.runtime().change(session, attempt, written_bytes=size_bytes)

    def make_files(self, session: str, attempt: int, count: int) -> None:
        self.runtime().change(session, attempt, made_files=count)

    def set_exec_handler(self, exit_code: int, output: str) -> Sequence[str]:
        self.runtime().set_exec_handler(lambda command, environment: ExecResult(exit_code=exit_code, output=output))
        return ["anything"]

    def clean_up(self) -> None:
        pass


@lru_cache
def ensure_sandbox_built() -> None:
    """Have the program of the sandbox image; up to date takes no time."""
    command = ["make", "-s", "-C", str(BUILD.parent), f"PYTHON={sys.executable}", "sandbox"]
    with exclusive("fgpu-build"):
        subprocess.run(command, check=True)


class DockerWorld:
    """The Docker Engine of this machine, in an installation of its own; its runtimes keep `sandboxes` ready each.

    Tests may share one, which is emptied between them: the networks that its worker has ready stay.
    """

    network = f"gp-test-{process_number()}"  # what is tested of addresses allows no other process on it

    def __init__(self, image: str, sandboxes: int = 0) -> None:
        ensure_sandbox_built()
        self.image = image
        self.installation = new_session()
        self._installations = {self.installation}
        self.client = APIClient(ENGINE_URL, version="auto")
        self._sandboxes = sandboxes
        self._worker: DockerRuntime | None = None
        self._keepers: dict[DockerRuntime, tuple[threading.Thread, threading.Event]] = {}

    def runtime(self, installation: str = "", host: str = "here") -> DockerRuntime:
        name = installation or self.installation
        self._installations.add(name)
        made = DockerRuntime(name, host, ENGINE_URL, network=self.network, sandboxes=self._sandboxes)
        if self._sandboxes:
            stopped = threading.Event()
            keeper = threading.Thread(target=made.keep_warm, args=(stopped,))
            self._keepers[made] = keeper, stopped
            keeper.start()
            until(lambda: len(made._pool.state.free) == self._sandboxes)
        return made

    def worker(self) -> DockerRuntime:
        worker = self._worker = self._worker or self.runtime()
        if self._sandboxes and not self._is_ready(worker):
            worker._pool.keeper._reconciled_at = -RECONCILE_SECONDS  # so that it notices at once what is gone
            until(lambda: self._is_ready(worker))
        return worker

    def _is_ready(self, worker: DockerRuntime) -> bool:
        """Return whether the worker knows all networks that are ready, and they are as many as it keeps."""
        alive = {
            name for name, each in self.sandboxes().items() if name.startswith(FREE) and each["State"] == "running"
        }
        return worker._pool.state.free.keys() == alive and len(alive) == self._sandboxes

    def sandboxes(self) -> dict[str, dict[str, Any]]:
        """Return what the engine's list says of each sandbox, by name."""
        marks = {"label": [f"{INSTALLATION_LABEL}={self.installation}", SANDBOX_LABEL]}
        return {each["Names"][0].lstrip("/"): each for each in self.client.containers(all=True, filters=marks)}

    def plant(self, session: str, attempt: int, labels: Mapping[str, str] | None = None) -> None:
        """Run a container of somebody else's; `labels` is empty for one that knows nothing of us."""
        # Its own label is only for clean_up.
        config = {
            "Image": self.image,
            "Entrypoint": ["sleep", "1000"],
            "Labels": {"gpuplatform-test": self.installation, **(labels or {})},
            "HostConfig": {"NetworkMode": "none"},
        }
        name = container_name(session, attempt)
        self.client.create_container_from_config(config, name)
        self.client.start(name)

    def is_planted(self, session: str, attempt: int) -> bool:
        try:
            return bool(self.client.inspect_container(container_name(session, attempt))["State"]["Running"])
        except NotFound:
            return False

    def execute(self, session: str, attempt: int, command: str, user: str = "root") -> tuple[int, str]:
        """Run a shell command in the container; return its exit code and its output."""
        return output_of(self.client, container_name(session, attempt), command, user)

    def end(self, session: str, attempt: int, exit_code: int) -> None:
        """Only a signal ends the entry point from outside: 137, or 0 by TERM."""
        assert exit_code in (0, 137)
        signal = "TERM" if exit_code == 0 else "KILL"
        self.execute(session, attempt, f"kill -{signal} {self.entry_process(session, attempt)}")

    def entry_process(self, session: str, attempt: int) -> int:
        """Return the entry script's process id within the container, once its init has it: the only child."""
        children = until(lambda: self.execute(session, attempt, "cat /proc/1/task/1/children")[1].split())
        return int(children[0])

    def run_out_of_memory(self, session: str, attempt: int) -> None:
        """Make the entry point the kernel's first choice, then fill /dev/shm, which must be as large as the memory."""
        entry = self.entry_process(session, attempt)
        self.execute(session, attempt, f"echo 1000 > /proc/{entry}/oom_score_adj; cat /dev/zero > /dev/shm/full")

    def kill_for_memory(self, session: str, attempt: int) -> None:
        code, _ = self.execute(session, attempt, "dd if=/dev/zero of=/dev/null bs=512M count=1")
        assert code == 137

    def lose_container(self, session: str, attempt: int) -> None:
        self.client.remove_container(container_name(session, attempt), force=True)

    def write_log(self, session: str, attempt: int, line: str) -> None:
        self.execute(session, attempt, f"echo {json.dumps(line)} > /proc/1/fd/1")

    def write_data(self, session: str, attempt: int, size_bytes: int) -> None:
        self.execute(session, attempt, f"dd if=/dev/zero of=/data bs={size_bytes} count=1")

    def make_files(self, session: str, attempt: int, count: int) -> None:
        self.execute(session, attempt, f"i=0; while [ $i -lt {count} ]; do i=$((i + 1)); : > /file-$i; done")

    def set_exec_handler(self, exit_code: int, output: str) -> Sequence[str]:
        return ["sh", "-c", f"printf %s {shlex.quote(output)}; exit {exit_code}"]

    def inspect(self, session: str, attempt: int) -> dict[str, Any]:
        """Return the engine's own view of the container."""
        container: dict[str, Any] = self.client.inspect_container(container_name(session, attempt))
        return container

    def empty(self) -> None:
        """Remove what a test has left, but for the networks that the worker has ready."""
        self._end_keepers(spared=self._worker)
        spared = FREE if self._worker else ""
        for mark in self._marks():
            remove_containers(mark, spared=spared)
        self._installations = {self.installation}
        until(lambda: all(name.startswith(FREE) for name in self.sandboxes()))  # the keeper may be removing one too

    def clean_up(self) -> None:
        self._end_keepers()
        for mark in self._marks():
            remove_containers(mark)
        self.client.close()

    def _marks(self) -> list[str]:
        return [
            *(f"{INSTALLATION_LABEL}={name}" for name in self._installations),
            f"gpuplatform-test={self.installation}",
        ]

    def _end_keepers(self, spared: DockerRuntime | None = None) -> None:
        ending = [self._keepers.pop(runtime) for runtime in [*self._keepers] if runtime is not spared]
        for _, stopped in ending:
            stopped.set()
        for keeper, _ in ending:
            keeper.join()


def hand_made_labels(world: DockerWorld) -> dict[str, str]:
    """Return labels of ours as somebody might copy them onto a container of theirs, with a key that is none."""
    return {
        INSTALLATION_LABEL: world.installation,
        HOST_LABEL: "here",
        SESSION_LABEL: "copied",
        ATTEMPT_LABEL: "first",
    }


def cgroup_value(v1_path: str, v2_path: str) -> str:
    """Return the shell command that prints a limit as the container itself sees it, for either cgroup version."""
    is_v2 = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    return f"cat /sys/fs/cgroup/{v2_path if is_v2 else v1_path}"


EVERY_WORLD: Final = [
    "memory",
    pytest.param("docker with sandboxes", marks=pytest.mark.docker),  # as hosts run
    pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.long]),
]


def tiny_world() -> Iterator[DockerWorld]:
    """Be a fixture: the Docker Engine with an image that has nothing but busybox."""
    made = DockerWorld(ensure_tiny_image())
    yield made
    made.clean_up()


def runtime_of(world: World) -> Runtime:
    """Be a fixture: the worker of the fixture `world`."""
    return world.worker()


def launch(runtime: Runtime, spec: ContainerSpec) -> ContainerSpec:
    """Run a container and return its spec."""
    runtime.create(spec)
    runtime.start(spec.session, spec.attempt)
    return spec
