"""What a CDI specification adds to a container, checked against this host, in the terms of the engine's API.

The engine gives a device node the owner and mode that it has on the host, and runs no hooks: a device of which the
specification says otherwise is refused, or left to an engine that knows CDI.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

from resources.accelerators.devices import ContainerEdits, DeviceMount, DeviceNode

MAX_PARTS: Final = 256  # of a list
VARIABLE: Final = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)=[^\0\n]{0,4096}", re.ASCII)
OURS: Final = frozenset({"LD_PRELOAD", "LD_AUDIT"})  # of the platform's own, beside GPUPLATFORM_...
PERMISSIONS: Final = re.compile("r?w?m?")
KNOWN_MEMORY: Final = {(1, 1), (1, 2), (1, 4)}  # mem, kmem and port: all of the host
MOUNT_OPTIONS: Final = frozenset({"ro", "rw", "bind", "rbind", "private", "rprivate", "slave", "rslave"})
# Without a meaning here: containers have no device nodes but those allowed, and gain no rights by a set-user-id file.
VOID_OPTIONS: Final = frozenset({"nosuid", "nodev"})
HOST_FOLDERS: Final = tuple(map(Path, ("/proc", "/sys", "/dev", "/boot", "/root", "/home", "/etc/shadow")))
SOCKETS: Final = tuple(map(Path, ("/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock")))
RESERVED_TARGETS: Final = tuple(map(PurePosixPath, ("/proc", "/sys", "/dev", "/etc/ld.so.preload", "/run/fgpu")))
HOOKS: Final = "hooks"
EDITS: Final = frozenset({"env", "deviceNodes", "mounts", HOOKS, "additionalGids"})


class CdiError(ValueError):
    """A specification that is none, or cannot be applied; the message goes on a sentence about it."""


def mapping(found: object, what: str) -> Mapping[str, Any]:
    """Return a mapping of a specification. Raises CdiError."""
    if not isinstance(found, Mapping):
        raise CdiError(f"{what} is no object")
    return found


def listed(parts: Mapping[str, Any], name: str, most: int = MAX_PARTS) -> Sequence[Any]:
    """Return a list of a specification, [] where it has none. Raises CdiError."""
    found = parts.get(name) or []
    if not isinstance(found, list) or len(found) > most:
        raise CdiError(f"{name} is no list of at most {most}")
    return found


def has_hooks(parts: Mapping[str, Any]) -> bool:
    """Return whether these edits have hooks, which a runtime runs as root on the host."""
    return bool(parts.get(HOOKS))


def edits(parts: Mapping[str, Any], protected: Sequence[Path]) -> ContainerEdits:
    """Return the edits of a specification, but for its hooks. Raises CdiError."""
    if unknown := sorted(map(str, parts.keys() - EDITS)):
        raise CdiError(f"the container engine cannot apply its {unknown[0][:40]}")
    return ContainerEdits(
        environment=tuple(map(_variable, listed(parts, "env"))),
        nodes=tuple(_node(mapping(node, "a device node")) for node in listed(parts, "deviceNodes")),
        mounts=tuple(_mount(mapping(mount, "a mount"), protected) for mount in listed(parts, "mounts")),
        groups=tuple(map(_group, listed(parts, "additionalGids"))),
    )


def _variable(text: object) -> str:
    match = VARIABLE.fullmatch(text) if isinstance(text, str) else None
    if not match or match["name"] in OURS or match["name"].startswith("GPUPLATFORM_"):
        raise CdiError(f"its variable {str(text)[:40]!r} cannot be set")
    return match[0]


def _group(found: object) -> int:
    if type(found) is not int or not 0 < found < 1 << 31:
        raise CdiError(f"its additional group {str(found)[:20]!r} cannot be given")
    return found


def _path(parts: Mapping[str, Any], name: str, default: str = "") -> str:
    """Return an absolute path without detours. Raises CdiError."""
    found = parts.get(name) or default
    if not isinstance(found, str) or not found.startswith("/") or os.path.normpath(found) != found or "\0" in found:
        raise CdiError(f"its {name} {str(found)[:80]!r} is no absolute path")
    return found


def _node(parts: Mapping[str, Any]) -> DeviceNode:
    """Return a device node that is on the host what the specification says. Raises CdiError."""
    target = _path(parts, "path")
    source = os.path.realpath(_path(parts, "hostPath", target))
    try:
        found = os.stat(source)
    except OSError as error:
        raise CdiError(f"its device node {source} cannot be used: {error.strerror}") from error
    number = os.major(found.st_rdev), os.minor(found.st_rdev)
    if not stat.S_ISCHR(found.st_mode) or (parts.get("type") or "c") not in ("c", "u") or number in KNOWN_MEMORY:
        raise CdiError(f"its device node {source} is no character device of an accelerator")
    here = {"major": number[0], "minor": number[1], "uid": found.st_uid, "gid": found.st_gid}
    here["fileMode"] = stat.S_IMODE(found.st_mode)
    wrong = next((name for name, value in here.items() if parts.get(name, value) != value), "")
    # A specification may leave the numbers at 0, and so let the host say them; see the reference implementation.
    if wrong and not (wrong in ("major", "minor") and not parts.get("major") and not parts.get("minor")):
        raise CdiError(f"its device node {source} has another {wrong} on the host than it says ({here[wrong]})")
    permissions = parts.get("permissions") or "rw"
    if not isinstance(permissions, str) or not PERMISSIONS.fullmatch(permissions):
        raise CdiError(f"its device node {source} has unknown permissions")
    return DeviceNode(source, target, permissions)


def _mount(parts: Mapping[str, Any], protected: Sequence[Path]) -> DeviceMount:
    """Return a mount of what containers may have of the host, writable where it says "rw". Raises CdiError."""
    target, source = _path(parts, "containerPath"), os.path.realpath(_path(parts, "hostPath"))
    options = listed(parts, "options")
    if (parts.get("type") or "bind") not in ("bind", "none") or not {
        *map(str, options)
    } <= MOUNT_OPTIONS | VOID_OPTIONS:
        raise CdiError(f"the container engine cannot mount {source} with the options that it names")
    if not os.path.exists(source):
        raise CdiError(f"its mount {source} is not there")
    if reserved := next(_touching(Path(source), (*HOST_FOLDERS, *SOCKETS, *protected)), None):
        raise CdiError(f"it mounts {source}, and no session gets anything of {reserved}")
    if PurePosixPath(target) == PurePosixPath("/") or any(
        PurePosixPath(target).is_relative_to(each) for each in RESERVED_TARGETS
    ):
        raise CdiError(f"it mounts to {target}, which is not its to give")
    return DeviceMount(source, target, is_read_only="rw" not in options)


def _touching(source: Path, reserved: Sequence[Path]) -> Iterator[Path]:
    """Yield the paths that are the source, in it, or around it."""
    for each in reserved:
        for path in {each, Path(os.path.realpath(each))}:
            if source.is_relative_to(path) or path.is_relative_to(source):
                yield each
