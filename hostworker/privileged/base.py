"""What the operations that need root on the host take, return and raise. No Django."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class PrivilegesError(OSError):
    """A privileged operation could not be carried out; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelUse:
    """What each container holds, {container id: {kind: number}}, and how much all may hold together, {kind: number}."""

    held: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFiles:
    """A running container and the files on the host that hold its names."""

    container_id: str
    pid: int  # of its main process, in the host's pid namespace
    hostname_path: Path
    hosts_path: Path

    @classmethod
    def of(cls, inspected: Mapping[str, Any]) -> "ContainerFiles":
        """Return what the engine's answer to an inspection names."""
        return cls(
            container_id=str(inspected["Id"]),
            pid=int(inspected["State"]["Pid"]),
            hostname_path=Path(inspected["HostnamePath"]),
            hosts_path=Path(inspected["HostsPath"]),
        )
