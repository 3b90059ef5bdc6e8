"""A second machine for tests: a network namespace with a Docker Engine in it, joined to this machine by one cable.

Its containers have addresses that only it can reach, as those of another host do; processes are run on it with `on_it`.
PostgreSQL and Redis are reached by their sockets, which are files. Ended with this process, however that ends, save
for the namespace itself. Images and containers are in memory: on a busy disk a large image is a minute of work.
"""

import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from docker.api import APIClient

from operations.machine.docker_engine import examine
from operations.machine.system_packages import program
from tests.containers import LOAD_SECONDS, copy_image
from tests.wait import SECONDS, until

IN_MEMORY: Final = 'mount -t tmpfs -o size=6g none "$0" && exec "$@"'  # the folder $0, gone with its last process
IN_FOLDER: Final = 'cd "$0" && exec "$@"'  # entering a mount namespace leaves the folder
IDS: Final = ("/etc/subuid", "/etc/subgid")
REMAPPED: Final = "daemon"  # a user that every machine has, to whom the engine's subordinate ids belong


@dataclass(frozen=True, slots=True, kw_only=True)
class FarMachine:
    """The second machine."""

    address: str  # at its end of the cable
    near_address: str  # of this machine, at ours
    engine_url: str
    on_it: tuple[str, ...]  # words before a command that run it there
    beside_engine: tuple[str, ...]  # the same, where it sees the engine's own files as well

    def has_container(self, container_id: str) -> bool:
        """Return whether its engine has this container."""
        client = APIClient(self.engine_url, version="auto")
        try:
            return any(each["Id"] == container_id for each in client.containers(all=True))
        finally:
            client.close()

    def take_image(self, reference: str) -> None:
        """Copy an image of this machine's engine to its own."""
        with closing(APIClient(self.engine_url, version="auto", timeout=LOAD_SECONDS)) as far:
            copy_image(reference, far)


@contextmanager
def far_machine(subordinate_ids: str = "") -> Iterator[FarMachine]:
    """Set the machine up, which takes a second or two, and take it down with all that runs in its containers.

    `subordinate_ids` are lines of /etc/subuid, without the name, to which the engine maps users of containers.
    """
    token = secrets.token_hex(4)
    name, near_end, far_end = f"gptest-{token}", f"gpt{token}a", f"gpt{token}b"
    network = f"198.18.{secrets.randbelow(256)}.{4 * secrets.randbelow(64)}".rsplit(".", 1)  # kept for tests, RFC 2544
    near, far = (f"{network[0]}.{int(network[1]) + host}" for host in (1, 2))
    on_it = ("nsenter", f"--net=/run/netns/{name}")
    with ExitStack() as undo:
        folder = Path(tempfile.mkdtemp(prefix="gpfar-"))  # short: a socket's path has 107 bytes
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        _run("ip", "netns", "add", name)
        undo.callback(_run, "ip", "netns", "del", name)
        _run("ip", "link", "add", near_end, "type", "veth", "peer", "name", far_end, "netns", name)
        undo.callback(_run, "ip", "link", "del", near_end)
        _run("ip", "addr", "add", f"{near}/30", "dev", near_end)
        _run("ip", "link", "set", near_end, "up")
        for words in (("link", "set", "lo", "up"), ("addr", "add", f"{far}/30", "dev", far_end)):
            _run(*on_it, "ip", *words)
        _run(*on_it, "ip", "link", "set", far_end, "up")
        engine = undo.enter_context(_engine(folder, on_it, subordinate_ids))
        yield FarMachine(
            address=far,
            near_address=near,
            engine_url=f"unix://{folder}/docker.sock",
            on_it=on_it,
            beside_engine=(*on_it, f"--mount=/proc/{engine}/ns/mnt", "sh", "-c", IN_FOLDER, str(Path.cwd())),
        )


@contextmanager
def _engine(folder: Path, on_it: tuple[str, ...], subordinate_ids: str) -> Iterator[int]:
    """Run a Docker Engine whose every file is below `folder`; the large ones in memory that only it sees.

    Yield the id of its process.
    """
    url, log, data = f"unix://{folder}/docker.sock", folder / "dockerd.log", folder / "data"
    options = {"data-root": data, "exec-root": folder / "exec", "pidfile": folder / "pid", "host": url}
    words = [str(program("dockerd")), *(f"--{name}={value}" for name, value in options.items())]
    data.mkdir()
    folder.chmod(0o711)  # root of containers, whom the engine may map, passes through
    ids = folder / "subordinate-ids"
    ids.write_text("".join(f"{REMAPPED}:{line}\n" for line in subordinate_ids.split()))
    binds = "".join(f'mount --bind "{ids}" {path} && ' for path in IDS) if subordinate_ids else ""
    words += [f"--userns-remap={REMAPPED}:{REMAPPED}"] if subordinate_ids else []
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                *on_it,
                "setpriv",
                "--pdeathsig",
                "TERM",
                "unshare",
                "--mount",
                "sh",
                "-c",
                binds + IN_MEMORY,
                str(data),
                *words,
            ],
            stdout=output,
            stderr=output,
        )
    try:
        until(lambda: process.poll() is not None or not examine(url).problem)
        assert process.poll() is None, log.read_text()
        yield process.pid
        _remove_containers(url)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(SECONDS)


def _remove_containers(url: str) -> None:
    client = APIClient(url, version="auto")
    for container in client.containers(all=True):
        client.remove_container(container["Id"], force=True)
    client.close()


def _run(*command: str) -> None:
    subprocess.run([str(program(command[0])), *command[1:]], check=True)
