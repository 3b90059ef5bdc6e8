"""The Runtime protocol: what the platform needs of a container engine. No Django; the engine's exceptions stop here."""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from fgpu.mounts import BindMount
from hostworker.cluster_protocol import ClusterControl, ClusterPlace
from hostworker.conversion.base import ImageEngine
from resources.accelerators.kinds import NVIDIA
from resources.amounts.units import CORE_MILLI
from resources.gpus.shares import Sharing
from resources.gpus.tiers import Tier
from resources.registries.login import RegistryLogin

Key = tuple[str, int]  # session id, attempt


FindLogin = Callable[[], RegistryLogin | None]


class ContainerRuntimeError(Exception):
    """The engine could not do what was asked; the message can be shown to the session's owner.

    `is_host_fault` says that another host may well do it.
    """

    is_host_fault = False  # unless the error is made with another value

    def __init__(self, message: str = "", *, is_host_fault: bool | None = None) -> None:
        super().__init__(message)
        if is_host_fault is not None:
            self.is_host_fault = is_host_fault


class ImageUnavailableError(ContainerRuntimeError):
    """The image is not on the host and cannot be pulled."""


class StartError(ContainerRuntimeError):
    """The engine refused to create or start the container."""

    is_host_fault = True


class HasEndedError(StartError):
    """The container was started before, and has ended by itself since; its exit is still to be noted."""

    is_host_fault = False


class MountError(ContainerRuntimeError):
    """A folder that the session asked for cannot be mounted."""


class EnforcementError(ContainerRuntimeError):
    """The container would not be held to its shares of GPUs, so it may not run."""

    is_host_fault = True


class SaveError(ContainerRuntimeError):
    """The container cannot be saved, or is neither there nor saved."""


class ResizeError(ContainerRuntimeError):
    """The container cannot have other amounts, or uses more than it was to have; it has those that it had before."""


class RemovalError(ContainerRuntimeError):
    """The engine answers, but does not remove the container, such as one with a process that cannot be killed."""


class ExecutionError(ContainerRuntimeError):
    """No program can be run in the container, or the one that was did not end in time."""


class EngineUnreachableError(ContainerRuntimeError):
    """The engine does not respond, so the state of containers is unknown; the call may be retried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuGrant:
    """A share of one device: `share_milli` of the device's `gpu_milli` milli-fGPU."""

    uuid: str
    share_milli: int
    gpu_milli: int
    memory_bytes: int  # of the whole device
    is_simulated: bool
    tier: Tier = Tier.HOOK
    kind: str = NVIDIA


@dataclass(frozen=True, slots=True, kw_only=True)
class EnforcementSetup:
    """Mounts and environment variables that hold a container to its shares of GPUs, and show it its other shares.

    `cpus` are those that it is pinned to, such as "0-1,4"; "" for all. With `sets_variables` one of the mounts is a
    file that sets the user's variables, and those of the image that are `withheld` from the engine's hooks.
    """

    mounts: tuple[BindMount, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    cpus: str = ""
    sets_variables: bool = False
    withheld: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderMount:
    """A directory of the host in the container; what the host mounts below it is not seen there."""

    source: Path
    target: str
    is_read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """Everything a container needs to be created; `session` and `attempt` are its key."""

    session: str
    attempt: int
    image: str
    cpu: int  # cores that it may use
    memory_bytes: int  # no swap on top
    shared_memory_bytes: int  # of /dev/shm, counted within `memory_bytes`
    core_milli: int = CORE_MILLI  # thousandths of each core that are guaranteed
    gpus: tuple[GpuGrant, ...] = ()
    sharing: Sharing = Sharing.CAP  # what becomes of GPU time that the holders of shares leave idle
    folders: tuple[FolderMount, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)  # of the platform's
    variables: dict[str, str] = field(
        default_factory=dict
    )  # of the user's, which win; no hook of the engine's gets them
    allow_sudo: bool = False
    disk_bytes: int | None = None  # that it may write outside of its mounts, where the engine can bound that
    hostname: str = ""
    command: str = ""  # a line of the shell; the container ends with it. Empty: it stays until it is stopped
    cluster: ClusterPlace | None = None

    @property
    def has_host_network(self) -> bool:
        """Whether the container has the network of its host, and so no address of its own."""
        return self.cluster is not None and self.cluster.host_network is not None


class ContainerPhase(StrEnum):
    """The state of a container as the engine reports it."""

    CREATED = "created"  # never started
    RUNNING = "running"
    EXITED = "exited"  # its main process has ended; the container still exists


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerState:
    """One of our containers as the engine reports it."""

    session: str
    attempt: int
    container_id: str
    phase: ContainerPhase
    exit_code: int | None = None  # only when EXITED
    out_of_memory: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerUse:
    """What a container uses now, and since it started."""

    cpu_nanoseconds: int  # since its start, of all cores together
    memory_bytes: int  # without `cache_bytes`
    cache_bytes: int  # page cache that is given back when programs need the memory
    shared_bytes: int = 0  # of `memory_bytes`, what is in /dev/shm and the like
    received_bytes: int | None = 0  # since its start, as all below; None: not known
    sent_bytes: int | None = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    """The outcome of a program that ran in a container."""

    exit_code: int
    output: str  # stdout and stderr as they came, the first 64 KiB; undecodable bytes replaced


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldImage:
    """An image that is on this host."""

    size_bytes: int  # unpacked; layers that it shares with others count in each
    architecture: str  # such as amd64; "" if it does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSpace:
    """A disk's size, and what of it users other than root may still write; 0 files where no number is fixed."""

    free_bytes: int
    total_bytes: int
    free_files: int = 0  # inodes
    total_files: int = 0
    device: int = 0  # st_dev


class HostDisks(Protocol):
    """The disk that the engine keeps its containers on."""

    def space(self) -> DiskSpace | None:
        """Return its space; None where that is not known."""

    def written_bytes(self) -> dict[Key, int]:
        """Return the size of each running container's writable layer: what it wrote outside of its mounts."""

    def made_files(self, limits: Mapping[Key, int | None]) -> dict[Key, int]:
        """Return how many files are in the writable layers of these containers; unknown ones are left out.

        The engine's file system refuses more than the limit if it can; elsewhere the count ends just beyond it.
        """


class HostOutputs(Protocol):
    """What running containers write to their standard output, and who is held back."""

    def flooding(self) -> set[Key]:
        """Return the containers whose last lines came faster than the engine is to copy."""

    def slow_down(self, session: str, attempt: int) -> None:
        """Have the container's programs wait as they write, until they write less or `release` is called."""

    def slowed(self) -> set[Key]:
        """Return the containers that were slowed down and would still write more."""

    def release(self, session: str, attempt: int) -> None:
        """Hold the container back no more; one that is not held back is a success."""


class MountControl(Protocol):
    """Changes the folders that running containers mount, by their directories on this host."""

    def set_read_only(
        self, session: str, attempt: int, source: Path, *, read_only: bool, end_writers: bool = True
    ) -> bool:
        """Make a folder that the container mounts read-only, or writable again.

        Return False where programs have files in it open for writing; with `end_writers` those have then been told to
        end. A container that does not run, or does not mount it, is a success. Raises MountError.
        """

    def take_away(self, session: str, attempt: int, source: Path) -> None:
        """Take a folder that the container mounts out of it, and end the programs that hold something of it.

        A container that does not run, or does not mount it, is a success. Raises MountError.
        """

    def map_root(self, root: Path, key: str) -> Path:
        """Return where containers get the folders of a storage root from whose files are not the container user's.

        The files of the root with this key belong to that user there. Raises MountError with a sentence.
        """

    def unmap_root(self, key: str) -> None:
        """Take away what `map_root` has made, if it has; running containers keep their folders. Raises MountError."""


class Resizer(Protocol):
    """Changes what running containers are held to."""

    def resize(self, spec: ContainerSpec, before: ContainerSpec) -> None:
        """Hold the running container to the cores, memory and shares of GPUs of `spec`; so already is success.

        Raises ResizeError, and then it is held to those of `before`, also where an earlier call was cut off half-way;
        after other errors it may be held to either: call it again.
        """


class SavedContainers(Protocol):
    """Stopped containers that are kept as images of the engine, for a later attempt of the same session to begin with.

    Each method may raise EngineUnreachableError, too.
    """

    def save(self, session: str, attempt: int) -> int:
        """Save the stopped container with all that it wrote outside of its mounts; saved already is success.

        Return how many bytes that is, with those of the saved container that it was created from. Raises SaveError.
        """

    def reference(self, session: str, attempt: int) -> str | None:
        """Return the image to create a container from that goes on with the saved files; None where none is saved."""

    def keys(self) -> set[Key]:
        """Return the attempts of this installation and host that are saved."""

    def discard(self, session: str, attempt: int) -> None:
        """Delete what was saved; gone already is success, and so is what a container or a later one rests on."""


class HostImages(Protocol):
    """The images of the engine; each method may raise EngineUnreachableError, too."""

    def ensure(
        self,
        reference: str,
        on_progress: Callable[[str], None],
        find_login: FindLogin = lambda: None,
        *,
        always_pull: bool = False,
    ) -> None:
        """Pull the image unless it is on this host; `on_progress` is called with short sentences.

        With `always_pull` the registry is asked even where the image is on this host, and what it has there is taken.

        `find_login` is asked for the registry's login where a pull is needed; it goes to the engine with that request
        alone. Without one, what `docker login` stored for the worker's own user is used. Raises ImageUnavailableError.
        """

    def has(self, reference: str) -> bool:
        """Return whether the image is on this host."""

    def find(self, references: Collection[str]) -> dict[str, HeldImage]:
        """Return which of these images are on this host, by reference."""

    def remove_replaced(self) -> None:
        """Remove images of the catalogue whose successor is built, once no container uses them."""


class Runtime(Protocol):
    """A container engine on this host, bounded to one installation's containers of one host name.

    A container's key is (session, attempt). Every method is safe to call twice: what is already so counts as done.
    Each may raise EngineUnreachableError beside what it names. Implementations are safe to use from many threads.
    """

    images: HostImages
    mount_control: MountControl
    resizer: Resizer
    saved_containers: SavedContainers
    disks: HostDisks  # its methods may raise EngineUnreachableError too
    outputs: HostOutputs  # likewise
    clusters: ClusterControl | None  # None where containers reach each other anyway
    image_engine: ImageEngine | None  # what makes images of the containers; None where this runtime makes none

    def create(self, spec: ContainerSpec) -> str:
        """Create the container and return its id; an existing one with the same key is adopted and its id returned.

        Raises ImageUnavailableError, StartError, or EnforcementError where this host cannot divide a GPU.
        """

    def start(self, session: str, attempt: int, announce: Callable[[str], None] = lambda address: None) -> None:
        """Start the created container; a running one is left alone. Raises StartError, also when it is not there.

        `announce` is called with its address before anything of the session runs, so that whatever was known to be at
        that address can be forgotten first. Nobody else gets the address until the container is removed.
        Raises EnforcementError where it runs but is not held to its shares of GPUs; the caller removes it.
        """

    def address(self, session: str, attempt: int) -> str | None:
        """Return the IP address of the running container on this host; None where it has none, or does not run."""

    def stop(self, session: str, attempt: int, grace_seconds: int) -> None:
        """End the container's processes, killing those left after the grace; already ended or gone is success."""

    def remove(self, session: str, attempt: int) -> None:
        """Remove the container and its writable layer, running or not; already gone is success.

        One that does not run is hidden at once, and deleted some seconds later while others start. Raises RemovalError.
        """

    def containers(self) -> list[ContainerState]:
        """Return the state of every container of this installation and host, in any phase."""

    def leftover_attempts(self) -> set[Key]:
        """Return the attempts that may have files or a sandbox left on this host; `remove` deletes them."""

    def logs(self, session: str, attempt: int, tail: int) -> str:
        """Return the last `tail` lines that the container wrote, stdout and stderr in order; "" when it is gone."""

    def execute(self, session: str, attempt: int, command: Sequence[str], environment: Mapping[str, str]) -> ExecResult:
        """Run a short program in the running container, as its own user, and return once it has ended.

        What the program leaves in the background outlives it. Raises ExecutionError, also where no container runs.
        """

    def folders_problem(self) -> str:
        """Return why no data folder can be mounted in containers of the engine, as a sentence; "" where they can.

        Raises EngineUnreachableError.
        """

    def keep_warm(self, stopped: threading.Event) -> None:
        """Keep resources ready that speed up the next starts until `stopped` is set, then release them.

        Returns early where there are none. Does not raise when the engine fails: starts work without them.
        """

    def uses(self) -> dict[Key, ContainerUse]:
        """Return what each running container uses; one that cannot be measured is left out.

        What programs in the containers read as their memory (/proc/meminfo) is brought up to date with it.
        """

    def exits(
        self, stopped: threading.Event, on_memory_kill: Callable[[str, int], None] = lambda session, attempt: None
    ) -> Iterator[ContainerState]:
        """Yield the state of each container as it exits, until `stopped` is set; may miss some, see the reconciler.

        `on_memory_kill` is called with the key of a container in which the kernel has killed a process for want of
        memory, whether the container ends with it or not.
        Raises EngineUnreachableError when the stream breaks; the caller opens it again and reconciles.
        """
