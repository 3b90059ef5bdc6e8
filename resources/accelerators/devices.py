"""An accelerator as it is found on a host, and what a container needs to use it. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A device of the host, its path in the container, and what the container may do with it (of "rwm")."""

    source: str
    target: str
    permissions: str = "rw"


@dataclass(frozen=True, slots=True)
class DeviceMount:
    """A file or folder of the host, and its path in the container."""

    source: str
    target: str
    is_read_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerEdits:
    """What is added to a container; `environment` as NAME=value, `groups` are further ids of its processes."""

    environment: tuple[str, ...] = ()
    nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[DeviceMount, ...] = ()
    groups: tuple[int, ...] = ()

    def __add__(self, other: "ContainerEdits") -> "ContainerEdits":
        """Return both together, each part once; of two values of a variable the later one counts."""
        variables = {each.partition("=")[0]: each for each in (*self.environment, *other.environment)}
        return ContainerEdits(
            environment=tuple(variables.values()),
            nodes=tuple({node.target: node for node in (*self.nodes, *other.nodes)}.values()),
            mounts=tuple({mount.target: mount for mount in (*self.mounts, *other.mounts)}.values()),
            groups=tuple(sorted({*self.groups, *other.groups})),
        )


NO_EDITS: Final = ContainerEdits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """A whole device, or a partition that its vendor cuts: what one session holds at a time.

    `name` is unique of its kind on the host; `uid` in the world, "" where the hardware does not say. A `problem`, the
    rest of a sentence, says why it is not lent. One that `needs_engine` is given to containers by an engine that knows
    it by CDI alone.
    """

    kind: str
    name: str
    model: str
    memory_bytes: int = 0  # 0: not known
    uid: str = ""
    edits: ContainerEdits = NO_EDITS
    problem: str = ""
    needs_engine: bool = False
    sensors: Path | None = None  # folder of sysfs, with what amdgpu and xe say of its use

    @property
    def cdi_name(self) -> str:
        """Its fully qualified name, as the Container Device Interface writes it."""
        return f"{self.kind}={self.name}"


Finder = Callable[[Path], Iterable[Accelerator]]  # of a root folder, "/" but in tests; what plug-ins are
