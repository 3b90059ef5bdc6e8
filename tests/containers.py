"""Containers that a test starts for itself and removes again."""

import secrets
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any

from docker.api import APIClient
from docker.errors import APIError

from engine.containers import SAVED_REPOSITORY
from tests.execs import output_of

REMOVED_AT_ONCE = 8
LOAD_SECONDS = 600  # of silence while an image of gigabytes is copied
ENGINE_URL = "unix:///var/run/docker.sock"
IDLE = ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"]
# Ends every process whose command line does not show that it idles, until none is left, and deletes files.
EMPTY = """
for pass in 1 2 3 4 5 6 7 8 9; do
    found= idle=" $(grep -ls 3600 /proc/[0-9]*/cmdline) "
    for process in /proc/[0-9]*; do
        case $idle in *[[:space:]]$process/*) ;; *) kill -9 ${process#/proc/} 2>/dev/null && found=yes ;; esac
    done
    [ "$found" ] || break
done
[ -z "$found" ] || exit 1
remove=rm; [ ! -x /bin/busybox ] || remove="busybox rm"
exec $remove -rf /tmp/* /tmp/.[!.]* /home/work/* /home/work/.[!.]*
"""
OWN = ("docker-init", "trap 'exit 0'", "sleep 3600")  # processes of every idling container


def copy_image(reference: str, engine: APIClient) -> None:
    """Copy an image of this machine's own engine to another engine."""
    with closing(APIClient(ENGINE_URL, version="auto", timeout=LOAD_SECONDS)) as own:
        for _ in engine.load_image(own.get_image(reference)):
            pass


def remove_containers(*labels: str, spared: str = "") -> None:
    """Remove the containers that have all these labels, and what was saved of such when they were parked.

    All at once, and those too that another is removing at this moment; not those whose names begin with `spared`.
    """
    client, chosen = APIClient(ENGINE_URL, version="auto"), {"label": list(labels)}

    def remove(container: Mapping[str, Any]) -> None:
        if not (spared and any(name.startswith(f"/{spared}") for name in container["Names"])):
            with _may_be_gone():
                client.remove_container(container["Id"], force=True, v=True)

    with ThreadPoolExecutor(REMOVED_AT_ONCE) as removing:
        [*removing.map(remove, client.containers(all=True, filters=chosen))]
    for image in client.images(SAVED_REPOSITORY, filters=chosen):
        for reference in image["RepoTags"] or ():
            with _may_be_gone():
                client.remove_image(reference)
    client.close()


@contextmanager
def _may_be_gone() -> Iterator[None]:
    try:
        yield
    except APIError as error:
        if error.status_code not in (404, 409):
            raise


@dataclass(frozen=True)
class Container:
    """A running container of a test."""

    id: str
    client: APIClient

    def run(self, command: str) -> str:
        """Return the output of a shell command in the container."""
        return output_of(self.client, self.id, command)[1]

    def processes(self) -> list[str]:
        """Return the command lines of its processes, init and the idling main process apart."""
        listing = self.client.top(self.id, ps_args="-eo pid,args")["Processes"]
        lines = [arguments for _, arguments in listing]
        return [line for line in lines if not any(own in line for own in OWN)]

    def idles(self) -> bool:
        """Return whether its command runs; before, though the engine reports a start, a signal ends it with code 2."""
        return "sleep 3600" in str(self.client.top(self.id))

    def stop(self) -> None:
        """Kill it."""
        self.client.kill(self.id)
        self.client.wait(self.id)

    def remove(self) -> None:
        """Remove it, whatever it does."""
        self.client.remove_container(self.id, force=True, v=True)
        self.client.close()

    def empty(self) -> bool:
        """End all its processes but those that idle, and delete its user's files; return whether it can be used."""
        try:
            exec_id = self.client.exec_create(self.id, ["sh", "-c", EMPTY], user="root")["Id"]
            self.client.exec_start(exec_id)
            return bool(self.client.exec_inspect(exec_id)["ExitCode"] == 0)
        except APIError:  # it has been stopped or removed
            return False


@contextmanager
def running_container(
    image: str, *, name: str = "", labels: Mapping[str, str] | None = None, engine_url: str = ENGINE_URL
) -> Iterator[Container]:
    """Start a container of `image` that idles, without network; remove it at the end."""
    client = APIClient(engine_url, version="auto")
    config = client.create_host_config(init=True, network_mode="none")
    name = name or f"gptest-{secrets.token_hex(6)}"
    created = client.create_container(image, IDLE, name=name, labels=dict(labels or {}), host_config=config)
    container = Container(str(created["Id"]), client)
    try:
        client.start(container.id)
        yield container
    finally:
        container.remove()


_free: dict[str, list[tuple[Container, ExitStack]]] = {}


@contextmanager
def lent_container(image: str) -> Iterator[Container]:
    """Lend a container as `running_container` starts it; it is emptied at the end, for this process's next test."""
    free = _free.setdefault(image, [])
    if not free:
        stack = ExitStack()
        free.append((stack.enter_context(running_container(image)), stack))
    container, stack = free.pop()
    try:
        yield container
    finally:
        if container.empty():
            free.append((container, stack))
        else:
            stack.close()


def remove_lent_containers() -> None:
    """Remove those that wait for another test."""
    for free in _free.values():
        while free:
            free.pop()[1].close()
