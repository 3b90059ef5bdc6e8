"""Machines of a cluster: network namespaces on one bridge, with an own Docker Engine where they are hosts."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import docker
import requests
from docker.errors import DockerException

from engine.containers import ATTEMPT_LABEL, SESSION_LABEL
from operations.machine.docker_engine import examine
from operations.machine.system_packages import program
from tests.cluster.isolation import MEMORY, run
from tests.cluster.lines import slow_line
from tests.cluster.processes import Process, descendants, kill_all, pids_with
from tests.containers import copy_image
from tests.wait import until

BRIDGE: Final = "lan"
NETWORK: Final = "198.18.0"  # kept for tests, RFC 2544
PLATFORM: Final = f"{NETWORK}.1"  # where web, schedulers and the campaign itself are
DISK_BYTES: Final = 1500 << 20
BROKEN_TEXT: Final = "nvidia-container-cli: initialization error: nvml error: driver not loaded"
# An engine's default runtime, in front of runc as NVIDIA's is, and as broken as that where the file exists.
RUNTIME: Final = f"""#!/bin/sh
case " $* " in
*" create "*) if [ -e "$0.broken" ]; then echo "{BROKEN_TEXT}" >&2; exit 1; fi ;;
esac
exec runc "$@"
"""

Answer = TypeVar("Answer")


def make_network() -> None:
    """Make the bridge, with this process's own address."""
    run("ip", "link", "add", BRIDGE, "type", "bridge")
    run("ip", "addr", "add", f"{PLATFORM}/24", "dev", BRIDGE)
    run("ip", "link", "set", BRIDGE, "up")


class Machine:
    """A network namespace with a cable to the bridge."""

    def __init__(self, name: str, number: int) -> None:
        """`number` is the last part of its address."""
        self.name = name
        self.address = f"{NETWORK}.{number}"
        self.on_it = (str(program("nsenter")), f"--net=/run/netns/{name}")
        self._cable = f"c-{name}"
        run("ip", "netns", "add", name)
        run("ip", "link", "add", self._cable, "type", "veth", "peer", "name", "eth0", "netns", name)
        for words in (("set", "lo", "up"), ("set", "eth0", "up")):
            run(*self.on_it, "ip", "link", *words)
        run(*self.on_it, "ip", "addr", "add", f"{self.address}/24", "dev", "eth0")
        run("ip", "link", "set", self._cable, "up")
        self.plug_in()

    def unplug(self) -> None:
        """Let every packet to it and from it be lost from now on; nobody is told."""
        run("ip", "link", "set", self._cable, "nomaster")

    def plug_in(self) -> None:
        """End that."""
        run("ip", "link", "set", self._cable, "master", BRIDGE)

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """Keep it off the network until the block ends."""
        self.unplug()
        try:
            yield
        finally:
            self.plug_in()

    @contextmanager
    def apart_from(self, other: "Machine") -> Iterator[None]:
        """Let nothing pass between it and another until the block ends; both reach all others."""
        both = (self, other), (other, self)
        for near, far in both:
            run(*near.on_it, "ip", "route", "add", "blackhole", f"{far.address}/32")
        try:
            yield
        finally:
            for near, far in both:
                run(*near.on_it, "ip", "route", "delete", "blackhole", f"{far.address}/32")

    @contextmanager
    def losing(self, share: float) -> Iterator[None]:
        """Let this share of the packets to it and from it be lost until the block ends."""
        match = ("-m", "statistic", "--mode", "random", "--probability", str(share), "-j", "DROP")
        for chain in ("INPUT", "OUTPUT"):
            run(*self.on_it, "iptables", "-w", "-I", chain, "!", "-i" if chain == "INPUT" else "-o", "lo", *match)
        try:
            yield
        finally:
            for chain in ("INPUT", "OUTPUT"):
                run(*self.on_it, "iptables", "-w", "-D", chain, "!", "-i" if chain == "INPUT" else "-o", "lo", *match)

    @contextmanager
    def delayed(self, seconds: float) -> Iterator[None]:
        """Let each packet to it and from it take so much longer until the block ends."""
        with self.cut_off(), slow_line(self._cable, BRIDGE, seconds):
            yield

    def shows(self, *command: str) -> str:
        """Return what a program on it shows, nothing where it fails."""
        words = [*self.on_it, str(program(command[0])), *command[1:]]
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout


class Engine:
    """A Docker Engine on a machine, with its data on a disk of its own, which is in memory."""

    def __init__(self, machine: Machine, logs: Path, *, live_restore: bool) -> None:
        """With `live_restore` containers outlive the engine."""
        self.live_restore = live_restore
        self._folder = MEMORY / machine.name
        self._data = self._folder / "data"
        self._data.mkdir(parents=True)
        run("mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(self._data))
        self.url = f"unix://{self._folder}/docker.sock"
        self._runtime = self._folder / "runtime"
        self._runtime.write_text(RUNTIME)
        self._runtime.chmod(0o755)
        options = {
            "data-root": self._data,
            "exec-root": self._folder / "exec",
            "pidfile": self._folder / "pid",
            "host": self.url,
            "insecure-registry": f"{NETWORK}.0/24",
            "add-runtime": f"fronted={self._runtime}",
            "default-runtime": "fronted",
        }
        words = [str(program("dockerd")), *(f"--{name}={value}" for name, value in options.items())]
        words += ["--live-restore"] if live_restore else []
        self.process = Process(f"{machine.name}-engine", words, _environment(), logs, machine.on_it)

    def start(self) -> None:
        """Start it and return once it responds, as an init system does that starts again what has ended."""

        def responds() -> bool:
            if not self.process.is_up:
                (self._folder / "pid").unlink(missing_ok=True)
                self.process.start()
            return not examine(self.url).problem

        until(responds)

    def kill(self, *, with_containers: bool = False) -> None:
        """Kill it and its containerd, and on request all that runs in its containers, as a power cut does."""
        own = descendants(self.process.pid)
        self.process.kill()
        kill_all(own)
        if with_containers:
            kill_all(self.contained())

    def contained(self) -> list[int]:
        """Return the ids of all processes in its containers, and of what looks after them."""
        shims = pids_with(f"{self._folder}/exec")
        return [*shims, *(pid for shim in shims for pid in descendants(shim))]

    @contextmanager
    def broken_runtime(self) -> Iterator[None]:
        """Let no container be created until the block ends, for what NVIDIA's runtime says without its driver."""
        mark = Path(f"{self._runtime}.broken")
        mark.touch()
        try:
            yield
        finally:
            mark.unlink()

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """Leave no byte on the disk until the block ends."""
        with filled(self._data):
            yield

    def client(self) -> Any:
        """Return a client with a short timeout."""
        return docker.APIClient(self.url, version="1.41", timeout=10)

    def containers(self) -> dict[tuple[str, int], tuple[str, str]]:
        """Return {(session, attempt): (container id, state)} of its sessions' containers. Raises OSError."""
        client = self.client()
        try:
            found = client.containers(all=True, filters={"label": SESSION_LABEL})
        except (DockerException, requests.RequestException) as error:
            raise OSError(str(error)) from error
        finally:
            client.close()
        return {
            (each["Labels"][SESSION_LABEL], int(each["Labels"][ATTEMPT_LABEL])): (each["Id"], each["State"])
            for each in found
        }

    def take_image(self, reference: str) -> None:
        """Copy an image of this machine's own engine, whose socket is a file, to this one."""
        with closing(self.client()) as far:
            copy_image(reference, far)

    def kill_container(self, container_id: str) -> None:
        """Kill a container behind the platform's back; one that has ended is no error."""
        self.ask(lambda client: client.kill(container_id))

    def ask(self, question: Callable[[Any], Answer]) -> Answer | None:
        """Return what its client returns; None where it refuses, or does not respond."""
        client = self.client()
        try:
            return question(client)
        except (DockerException, requests.RequestException):
            return None
        finally:
            client.close()


@contextmanager
def filled(folder: Path) -> Iterator[None]:
    """Leave no byte on the disk of a folder until the block ends."""
    filler = folder / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 20))
    try:
        yield
    finally:
        filler.unlink()


def _environment() -> dict[str, str]:
    return {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
