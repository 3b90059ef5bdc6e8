"""A container engine in this process's memory: the whole Runtime without containers, for tests, races and laptops.

Every MemoryRuntime of one `engine_url` sees the same containers, as every worker of a host sees the same engine. Beside
the protocol it offers the controls of MemoryEngineControl, by which tests inject faults and say what programs do.
"""

import ipaddress
import queue
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from engine.containers import container_name, saved_reference
from hostworker.cluster_protocol import ClusterControl
from hostworker.conversion.base import ImageEngine
from hostworker.enforcement.enforcer import Enforcer
from hostworker.runtime.memory.engine import KILLED, MemoryContainer, MemoryEngineControl
from hostworker.runtime.pull import PullText
from hostworker.runtime_protocol import (
    ContainerPhase,
    ContainerSpec,
    ContainerState,
    ContainerUse,
    DiskSpace,
    ExecResult,
    ExecutionError,
    FindLogin,
    HasEndedError,
    HeldImage,
    HostDisks,
    HostImages,
    HostOutputs,
    ImageUnavailableError,
    Key,
    MountControl,
    ResizeError,
    Resizer,
    SavedContainers,
    SaveError,
    StartError,
)
from resources.amounts.units import size_text

STOPPED_CHECK_SECONDS: Final = 0.1
MEMORY_IMAGE_BYTES: Final = 50_000_000
_FIRST_ADDRESS: Final = ipaddress.IPv4Address("10.255.0.0")
_ADDRESSES: Final = 1 << 16


def _address(container: MemoryContainer) -> str | None:
    if container.spec.has_host_network:
        return None
    return str(_FIRST_ADDRESS + int(container.state.container_id, 16) % _ADDRESSES)


class MemoryRuntime(MemoryEngineControl):
    """The containers of one installation and host name on the in-memory engine called `engine_url`.

    Implements Runtime.
    """

    def __init__(
        self,
        installation: str,
        host: str,
        engine_url: str = "memory://",
        enforcer: Enforcer | None = None,
        sandboxes: int = 0,
    ) -> None:
        super().__init__((installation, host), engine_url)
        self.images: HostImages = MemoryImages(self)
        self.saved_containers: SavedContainers = MemorySavedContainers(self)
        self.resizer: Resizer = MemoryResizer(self)
        self.disks: HostDisks = MemoryDisks(self)
        self.outputs: HostOutputs = MemoryOutputs(self)
        self.mount_control: MountControl = MemoryFolders(self)
        self.clusters: ClusterControl | None = None
        self.image_engine: ImageEngine | None = None  # there are no files here to make an image of

    def create(self, spec: ContainerSpec) -> str:
        name = container_name(spec.session, spec.attempt)
        with self.operation("create"):
            if existing := self.engine.containers.get(name):
                if existing.owner != self._owner:
                    raise StartError(f"The name {name} is taken by a container that is not the platform's.")
                return existing.state.container_id
            if spec.image in self.engine.missing_images:
                raise ImageUnavailableError(f"Image {spec.image} is not on the host.")
            if missing := [mount.source for mount in spec.folders if not mount.source.is_dir()]:
                raise StartError(f"The container could not be created: {missing[0]} is not there.")
            state = ContainerState(
                session=spec.session,
                attempt=spec.attempt,
                container_id=f"{next(self.engine.serial):064x}",
                phase=ContainerPhase.CREATED,
            )
            self.engine.containers[name] = MemoryContainer(self._owner, spec, state)
            return state.container_id

    def start(self, session: str, attempt: int, announce: Callable[[str], None] = lambda address: None) -> None:
        """Start the created container. One that has ended is not started again."""
        with self.operation("start"):
            container = self.find(session, attempt)
            if container is None:
                raise StartError("The container is not there.")
            if container.state.phase is ContainerPhase.EXITED:
                raise HasEndedError("The container has already ended.")
            if address := _address(container):
                announce(address)
            if container.state.phase is ContainerPhase.CREATED:
                container.state = replace(container.state, phase=ContainerPhase.RUNNING)
                container.log.append(f"{session} ready")

    def address(self, session: str, attempt: int) -> str | None:
        with self.operation("address"):
            container = self.find(session, attempt)
            if container is None or container.state.phase is not ContainerPhase.RUNNING:
                return None
            return _address(container)

    def stop(self, session: str, attempt: int, grace_seconds: int) -> None:
        """End the container at once, for its processes know no delay."""
        with self.operation("stop"):
            self.end_container(self.find(session, attempt), exit_code=0)

    def remove(self, session: str, attempt: int) -> None:
        with self.operation("remove"):
            if container := self.find(session, attempt):
                del self.engine.containers[container_name(session, attempt)]
                self.end_container(container, exit_code=KILLED)

    def containers(self) -> list[ContainerState]:
        with self.operation("containers"):
            return [each.state for each in self.engine.containers.values() if each.owner == self._owner]

    def leftover_attempts(self) -> set[Key]:
        """Return nothing: there is no GPU here whose share would need files."""
        return set()

    def logs(self, session: str, attempt: int, tail: int) -> str:
        with self.operation("logs"):
            container = self.find(session, attempt)
            lines = container.log[-tail:] if container and tail > 0 else []
            return "".join(f"{line}\n" for line in lines)

    def execute(self, session: str, attempt: int, command: Sequence[str], environment: Mapping[str, str]) -> ExecResult:
        with self.operation("execute"):
            container = self.find(session, attempt)
            if container is None or container.state.phase is not ContainerPhase.RUNNING:
                raise ExecutionError("The session's container is not running.")
            program = self.engine.program
        return program(command, environment)

    def folders_problem(self) -> str:
        return ""

    def keep_warm(self, stopped: threading.Event) -> None:
        """Return at once: every start is quick here."""

    def uses(self) -> dict[Key, ContainerUse]:
        with self.operation("uses"):
            return {key: container.use for key, container in self.running().items()}

    def exits(
        self, stopped: threading.Event, on_memory_kill: Callable[[str, int], None] = lambda session, attempt: None
    ) -> Iterator[ContainerState]:
        """Yield exits from the moment of this call, even before the first is asked for."""
        inbox: queue.SimpleQueue[ContainerState] = queue.SimpleQueue()
        with self.engine.lock:
            self.engine.listeners.append((self._owner, inbox))
        return self._exits(stopped, inbox, on_memory_kill)

    def _exits(
        self,
        stopped: threading.Event,
        inbox: "queue.SimpleQueue[ContainerState]",
        on_memory_kill: Callable[[str, int], None],
    ) -> Iterator[ContainerState]:
        try:
            while not stopped.is_set():
                with self.operation("exits"):
                    pass
                try:
                    state = inbox.get(timeout=STOPPED_CHECK_SECONDS)
                except queue.Empty:
                    continue
                if state.out_of_memory:
                    on_memory_kill(state.session, state.attempt)
                if state.phase is ContainerPhase.EXITED:
                    yield state
        finally:
            with self.engine.lock:
                self.engine.listeners = [each for each in self.engine.listeners if each[1] is not inbox]


class _RuntimePart:
    """What a part of the runtime has: the owner's hold on the engine."""

    def __init__(self, control: MemoryEngineControl) -> None:
        self._control = control


class MemoryImages(_RuntimePart):
    """Every reference is on the host, save those of `remove_image`. Implements HostImages."""

    def ensure(
        self,
        reference: str,
        on_progress: Callable[[str], None],
        find_login: FindLogin = lambda: None,
        *,
        always_pull: bool = False,
    ) -> None:
        with self._control.operation("ensure_image"):
            if reference not in self._control.engine.missing_images:
                return
            on_progress(PullText(f"Pulling {reference}"))
            if not self._control.engine.missing_images[reference]:
                raise ImageUnavailableError(
                    f"Image {reference} could not be pulled: the registry has no such image or tag."
                )
            del self._control.engine.missing_images[reference]

    def has(self, reference: str) -> bool:
        with self._control.operation("has_image"):
            return reference not in self._control.engine.missing_images

    def find(self, references: Collection[str]) -> dict[str, HeldImage]:
        with self._control.operation("images"):
            held = HeldImage(size_bytes=MEMORY_IMAGE_BYTES, architecture="amd64")
            return {reference: held for reference in references if reference not in self._control.engine.missing_images}

    def remove_replaced(self) -> None:
        """Nothing is built in memory."""


class MemorySavedContainers(_RuntimePart):
    """What one owner's containers have left in memory; `fail_next` has `save_container`, `discard_saved` and so on.

    Implements SavedContainers.
    """

    def save(self, session: str, attempt: int) -> int:
        with self._control.operation("save_container"):
            saved, container = self._control.saved(), self._control.find(session, attempt)
            if (session, attempt) not in saved:
                if container is None or container.state.phase is ContainerPhase.RUNNING:
                    raise SaveError("The session's container is not there, or still runs.")
                before = next((size for key, size in saved.items() if saved_reference(*key) == container.spec.image), 0)
                saved[session, attempt] = before + container.written_bytes
            return saved[session, attempt]

    def reference(self, session: str, attempt: int) -> str | None:
        with self._control.operation("saved_reference"):
            return saved_reference(session, attempt) if (session, attempt) in self._control.saved() else None

    def keys(self) -> set[Key]:
        with self._control.operation("saved_keys"):
            return set(self._control.saved())

    def discard(self, session: str, attempt: int) -> None:
        with self._control.operation("discard_saved"):
            self._control.saved().pop((session, attempt), None)


class MemoryResizer(_RuntimePart):
    """Resizes one owner's containers in memory; `fail_next` has `resize`. Implements Resizer."""

    def resize(self, spec: ContainerSpec, before: ContainerSpec) -> None:
        """Change the spec, unless more memory is used by `set_use`."""
        with self._control.operation("resize"):
            container = self._control.find(spec.session, spec.attempt)
            if container is None or container.state.phase is not ContainerPhase.RUNNING:
                raise ResizeError("Its container does not run.")
            if container.use.memory_bytes > spec.memory_bytes:
                self._hold(container, before)
                used, asked = size_text(container.use.memory_bytes), size_text(spec.memory_bytes)
                raise ResizeError(f"It uses {used} of memory, too much for {asked}.")
            self._hold(container, spec)

    @staticmethod
    def _hold(container: MemoryContainer, spec: ContainerSpec) -> None:
        container.spec = replace(container.spec, cpu=spec.cpu, memory_bytes=spec.memory_bytes, gpus=spec.gpus)


class MemoryOutputs(_RuntimePart):
    """The outputs of one owner's containers in memory: tests say which flood. Implements HostOutputs."""

    def flooding(self) -> set[Key]:
        return self._floods(is_slowed=False)

    def slow_down(self, session: str, attempt: int) -> None:
        with self._control.operation("slow_down"):
            if container := self._control.find(session, attempt):
                container.is_slowed = True

    def slowed(self) -> set[Key]:
        return self._floods(is_slowed=True)

    def release(self, session: str, attempt: int) -> None:
        """Do nothing, as nothing waits here."""

    def _floods(self, *, is_slowed: bool) -> set[Key]:
        with self._control.operation("floods"):
            running = self._control.running().items()
            return {key for key, each in running if each.is_flooding and each.is_slowed == is_slowed}


class MemoryDisks(_RuntimePart):
    """The disk of the in-memory engine, and what one owner's containers have written. Implements HostDisks."""

    def space(self) -> DiskSpace | None:
        with self._control.operation("disk_space"):
            return self._control.engine.disk_space

    def written_bytes(self) -> dict[Key, int]:
        with self._control.operation("written_bytes"):
            return {key: container.written_bytes for key, container in self._control.running().items()}

    def made_files(self, limits: Mapping[Key, int | None]) -> dict[Key, int]:
        with self._control.operation("made_files"):
            return {key: each.made_files for key, each in self._control.running().items() if key in limits}


class MemoryFolders(_RuntimePart):
    """The mounts of one owner's containers in memory; `fail_next` knows the methods by the names below.

    Implements MountControl.
    """

    def set_read_only(
        self, session: str, attempt: int, source: Path, *, read_only: bool, end_writers: bool = True
    ) -> bool:
        with self._control.operation("set_folder_read_only"):
            if container := self._control.find(session, attempt):
                folders = [
                    replace(each, is_read_only=read_only) if each.source == source else each
                    for each in container.spec.folders
                ]
                container.spec = replace(container.spec, folders=tuple(folders))
            return True

    def take_away(self, session: str, attempt: int, source: Path) -> None:
        with self._control.operation("take_folder_away"):
            if container := self._control.find(session, attempt):
                left = tuple(each for each in container.spec.folders if each.source != source)
                container.spec = replace(container.spec, folders=left)

    def map_root(self, root: Path, key: str) -> Path:
        with self._control.operation("map_root"):
            return root

    def unmap_root(self, key: str) -> None:
        return
