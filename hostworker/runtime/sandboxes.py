"""Network sandboxes: each session joins one, and some are made ready before they are needed.

A sandbox is a container that does nothing but hold a network namespace and its address, so that the address is
nobody else's until the platform has dealt with the session's end; half of a container's start is making those. Its
name at the engine is its whole state, and renaming, which the engine does for one caller alone, moves it on: free ->
of one attempt -> removed, or free -> retired -> removed. So it serves one session at most, whichever workers come, go
and die; see docs/adr/0007.
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from docker.api import APIClient
from docker.errors import APIError, ImageNotFound, NotFound

from hostworker.privileged.base import ContainerFiles, HostPrivileges, PrivilegesError
from hostworker.privileged.hostnames import SANDBOX_HOSTNAME
from hostworker.runtime import sandbox_image
from hostworker.runtime.base import ContainerRuntimeError, Key, StartError
from hostworker.runtime.docker_requests import (
    BAD_REQUEST,
    CONFLICT,
    NOT_FOUND,
    has_labels,
    ignore_missing,
    inspect,
    retry_on_conflict,
    translated,
)

logger = logging.getLogger(__name__)

SANDBOX_LABEL: Final = "gpuplatform.sandbox"
FREE: Final = "gp-sandbox-"  # + anything unique
USED: Final = "gp-net-"  # + session-attempt
RETIRED: Final = "gp-retired-"
MEMORY: Final = 16 << 20  # bytes; the program needs some kilobytes, the engine's start of it some megabytes
PIDS_LIMIT: Final = 32  # one process; the engine's start of it has some threads
QUIET_SECONDS: Final = 0.3  # without any start, before the engine is given work that nobody waits for
PUT_OFF_SECONDS: Final = 2.0  # the longest that starts, one after the other, hold up a removal
STEP_SECONDS: Final = 0.1
SURVEY_SECONDS: Final = 30.0
FAILURE_SECONDS: Final = 10.0


class Sandbox(NamedTuple):
    """A sandbox that runs, and the address that whoever joins it has."""

    id: str
    address: str | None


def address_in(container: Mapping[str, Any]) -> str | None:
    """Return the IP address that the engine's view of a container shows; None where it has none now."""
    networks = (container.get("NetworkSettings") or {}).get("Networks") or {}
    return next((str(each["IPAddress"]) for each in networks.values() if each.get("IPAddress")), None)


def sandbox_name(key: Key) -> str:
    """Return the engine-wide unique name of the sandbox that the attempt uses."""
    return f"{USED}{key[0]}-{key[1]}"


def sandbox_config(owner: Mapping[str, str], network: str, hostname: str = SANDBOX_HOSTNAME) -> dict[str, object]:
    """Return the body of the engine's create request; a session that joins has its host name from here."""
    return {
        "Image": sandbox_image.IMAGE,
        "Entrypoint": [sandbox_image.PROGRAM],
        "Hostname": hostname,
        "Labels": {**owner, SANDBOX_LABEL: "1"},
        "Env": ["NVIDIA_VISIBLE_DEVICES=void"],
        "HostConfig": {
            "NetworkMode": network,
            "Memory": MEMORY,
            "MemorySwap": MEMORY,
            "PidsLimit": PIDS_LIMIT,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "ReadonlyRootfs": True,
            "RestartPolicy": {"Name": "no"},
            "LogConfig": {"Type": "none"},
        },
    }


class SandboxPool:
    """The sandboxes of one installation and host on one engine; `size` of them are kept free while `keep` runs.

    Safe to use from many threads, and beside other workers of the same host.
    """

    def __init__(
        self,
        client: Callable[[], APIClient],
        owner: Mapping[str, str],
        ensure_network: Callable[[], str],
        size: int,
        privileges: HostPrivileges,
    ) -> None:
        """`ensure_network` makes the network where it is missing and returns its name."""
        self._client = client
        self._owner = dict(owner)
        self._ensure_network = ensure_network
        self._privileges = privileges
        self._size = size if sandbox_image.is_possible() else 0
        self._lock = threading.Lock()  # guards all that follow
        self._free: dict[str, Sandbox] = {}  # by name; what they say may be out of date
        self._discarded: dict[str, float] = {}  # ids that `keep` is to remove, oldest first, and by when at the latest
        self._is_kept = False
        self._starts_under_way = 0
        self._disturbed_at = -QUIET_SECONDS
        self._surveyed_at = -SURVEY_SECONDS
        self._last_failure = ""

    @contextmanager
    def pause_background_work(self) -> Iterator[None]:
        """Make nothing ready during the block, in which a session's container is made or started."""
        with self._lock:
            self._starts_under_way += 1
        try:
            yield
        finally:
            with self._lock:
                self._starts_under_way -= 1
                self._disturbed_at = time.monotonic()

    def take(self, key: Key, hostname: str) -> Sandbox | None:
        """Return a sandbox that is the attempt's alone from now on; one that is made now has the host name already.

        None where the machine runs none. It may have died meanwhile; see `revive`. Raises StartError, and what the
        SDK raises.
        """
        if not sandbox_image.is_possible():
            return None
        return self._take_free(key) or self._made_for(key, hostname or SANDBOX_HOSTNAME)

    def _take_free(self, key: Key) -> Sandbox | None:
        """Return one of those that are ready; None where none is, or the attempt has one already."""
        while candidate := self._pop():
            name, sandbox = candidate
            try:
                self._client().rename(name, sandbox_name(key))
            except NotFound:  # gone, or another worker's
                continue
            except APIError as error:
                if error.status_code != CONFLICT:
                    raise
                with self._lock:  # the attempt has one already, from a worker that died
                    self._free[name] = sandbox
                return None
            return sandbox
        return None

    def revive(self, key: Key) -> bool:
        """Start the attempt's sandbox again where it has died; return whether that was the case."""
        sandbox = self._of(key)
        if sandbox is None or sandbox["State"]["Running"]:
            return False
        self._client().start(sandbox["Id"])
        return True

    def address(self, key: Key) -> str | None:
        """Return the IP address of the attempt's sandbox, which is its session's; None without one that runs."""
        sandbox = self._of(key)
        return address_in(sandbox) if sandbox else None

    def discard(self, key: Key) -> None:
        """Remove the attempt's sandbox; see `discard_container`. None is fine."""
        if sandbox := self._of(key):
            self.discard_container(sandbox["Id"])

    def discard_container(self, container_id: str) -> None:
        """Remove a container that nobody uses, or have `keep` do so once nothing starts, within some two seconds.

        A session that ends makes room for another, whose start is on its way and is not to share the engine with this.
        What is left when this process dies, or cannot be removed, the reconciler finds.
        """
        with self._lock:
            if self._is_kept:
                now = self._disturbed_at = time.monotonic()
                self._discarded.setdefault(container_id, now + PUT_OFF_SECONDS)
                return
        self._remove(container_id)

    def is_discarded(self, container_id: str) -> bool:
        """Return whether the container is to be removed: whoever looks for it should not find it any more."""
        return container_id in self._discarded

    def keys(self) -> set[Key]:
        """Return the attempts that have a sandbox, save those whose removal is under way already."""
        return {
            (session, int(attempt))
            for name, sandbox in self._listed().items()
            if name.startswith(USED) and not self.is_discarded(sandbox["Id"])
            for session, _, attempt in [name.removeprefix(USED).rpartition("-")]
        }

    def keep(self, stopped: threading.Event) -> None:
        """Remove what is discarded and make sandboxes while nothing starts, until `stopped`; then remove the free."""
        with self._lock:
            self._is_kept = True
        try:
            while not stopped.wait(STEP_SECONDS):
                if not self._succeeds(self._step):
                    stopped.wait(FAILURE_SECONDS)
        finally:
            with self._lock:
                self._is_kept = False
            self._succeeds(self._dismiss)

    def _succeeds(self, step: Callable[[], None]) -> bool:
        """Take the step and return whether it went well; a failure is told once: sessions start all the same."""
        try:
            with translated(StartError):
                step()
        except ContainerRuntimeError as failure:
            if str(failure) != self._last_failure:
                logger.warning("networks are not made ready, or containers not removed: %s", failure)
            self._last_failure = str(failure)
            return False
        self._last_failure = ""
        return True

    def _step(self) -> None:
        """Remove what is due, looking before each whether something starts; else do one thing that takes long."""
        if self._next_due():
            while due := self._next_due():
                self._remove_discarded(due)
        elif not self._is_quiet():
            return
        elif time.monotonic() - self._surveyed_at >= SURVEY_SECONDS:
            self._survey()
        elif len(self._free) < self._size:
            self._make()

    def _next_due(self) -> str | None:
        """Return what has been discarded for longest, if it is time to remove it."""
        is_quiet = self._is_quiet()
        with self._lock:
            due = next(iter(self._discarded), None)
            return due if due and (is_quiet or time.monotonic() >= self._discarded[due]) else None

    def _remove_discarded(self, container_id: str) -> None:
        try:
            self._remove(container_id)
        finally:  # what could not be removed is to be found again
            with self._lock:
                self._discarded.pop(container_id, None)

    def _dismiss(self) -> None:
        """Remove what is free or discarded, an earlier worker's too; what fails is for the next worker's survey."""
        self._survey()
        for container_id in tuple(self._discarded):
            self._remove_discarded(container_id)
        while candidate := self._pop():
            self._retire(candidate[0])
        self._surveyed_at = -SURVEY_SECONDS

    def _survey(self) -> None:
        """Adopt what an earlier worker left free, forget what is gone, remove what is dead, retired or too much."""
        listed = self._listed()
        free = {name: each for name, each in listed.items() if name.startswith(FREE)}
        alive = {
            name: Sandbox(each["Id"], address_in(each)) for name, each in free.items() if each["State"] == "running"
        }
        with self._lock:
            known = {name: each for name, each in self._free.items() if name in alive}
            self._free = dict(list((known | alive).items())[: self._size])
            wanted = set(self._free)
        for name in free.keys() - wanted:
            self._retire(name)
        for name in listed:
            if name.startswith(RETIRED):
                self._remove(name)
        self._surveyed_at = time.monotonic()

    def _make(self) -> None:
        """Make one that is free."""
        name = f"{FREE}{secrets.token_hex(8)}"
        made = self._create(name, SANDBOX_HOSTNAME)
        try:
            inspected = self._run(made)
            is_nameable = self._privileges.can_name(ContainerFiles.of(inspected))
        except (APIError, StartError, PrivilegesError):
            self._remove(made)
            raise
        if is_nameable:
            with self._lock:
                self._free[name] = Sandbox(made, address_in(inspected))
            return
        logger.warning("no networks are made ready: this worker has no root on the engine's own host, as naming takes")
        self._size = 0
        self._remove(made)

    def _made_for(self, key: Key, hostname: str) -> Sandbox:
        """Return the attempt's sandbox: a new one, or what a worker that died has left it.

        What fails half-way is a trace of the attempt, and is removed with it.
        """
        for _ in retry_on_conflict():
            try:
                made = self._create(sandbox_name(key), hostname)
            except APIError as error:
                if error.status_code != CONFLICT:
                    raise
                existing = self._of(key)
                if existing is None:  # it is only coming or just going, or a stranger's
                    continue
                made = str(existing["Id"])
                if self.is_discarded(made):
                    self._remove(made)
                    continue
            return Sandbox(made, address_in(self._run(made)))
        raise StartError(f"The name {sandbox_name(key)} stays reserved although no container of ours has it.")

    def _create(self, name: str, hostname: str) -> str:
        """Return the id of a new container, which does not run yet; its image is made where it is missing."""
        client, config = self._client(), sandbox_config(self._owner, self._ensure_network(), hostname)
        try:
            return str(client.create_container_from_config(config, name)["Id"])
        except ImageNotFound:
            client.import_image_from_data(
                sandbox_image.layer(), repository=sandbox_image.REPOSITORY, tag=sandbox_image.TAG
            )
            return str(client.create_container_from_config(config, name)["Id"])

    def _run(self, made: str) -> dict[str, Any]:
        """Have it run, and return what the engine says of it. Raises StartError, and what the SDK raises."""
        self._client().start(made)
        inspected: dict[str, Any] = self._client().inspect_container(made)
        if not inspected["State"]["Running"]:  # as where another worker, which ends, removes it
            raise StartError("A sandbox ended as soon as it was made.")
        return inspected

    def _retire(self, name: str) -> None:
        """Remove a free sandbox, unless somebody has taken it meanwhile: only one of us can rename it."""
        retired = name.replace(FREE, RETIRED)
        try:
            self._client().rename(name, retired)
        except APIError as error:
            if error.status_code in (NOT_FOUND, CONFLICT, BAD_REQUEST):  # another is at it; 400: it has that name now
                return
            raise
        self._remove(retired)

    def _remove(self, sandbox: str) -> None:
        with ignore_missing():
            self._client().remove_container(sandbox, v=True, force=True)

    def _of(self, key: Key) -> dict[str, Any] | None:
        sandbox = inspect(self._client(), sandbox_name(key))
        return sandbox if sandbox and has_labels(sandbox, {**self._owner, SANDBOX_LABEL: "1"}) else None

    def _listed(self) -> dict[str, dict[str, Any]]:
        """Return our sandboxes, in any state, by name."""
        labels = [f"{label}={value}" for label, value in {**self._owner, SANDBOX_LABEL: "1"}.items()]
        listed = self._client().containers(all=True, filters={"label": labels})
        return {name.lstrip("/"): sandbox for sandbox in listed for name in sandbox["Names"][:1]}

    def _pop(self) -> tuple[str, Sandbox] | None:
        with self._lock:
            return self._free.popitem() if self._free else None

    def _is_quiet(self) -> bool:
        with self._lock:
            return not self._starts_under_way and time.monotonic() - self._disturbed_at >= QUIET_SECONDS
