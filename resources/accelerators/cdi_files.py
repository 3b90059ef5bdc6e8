"""Reads specifications of the Container Device Interface (CDI), up to version 1.0, and lists the devices in them.

They are root's word on what containers get, so a file that somebody else may write is refused.
https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md
"""

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import yaml

from resources.accelerators import cdi_edits
from resources.accelerators.cdi_edits import CdiError, listed, mapping
from resources.accelerators.devices import Accelerator
from resources.accelerators.kinds import kind_problem
from resources.accelerators.sysfs import regular_file
from resources.amounts.units import bytes_from

FILE_BYTES: Final = 512 * 1024
MAX_FILES: Final = 64  # of a folder
MAX_DEVICES: Final = 256  # of a file
MAX_DEPTH: Final = 16  # of YAML; libyaml itself crashes at some point
VERSION: Final = re.compile(r"0\.[1-8]\.\d|1\.0\.\d")
DEVICE_NAME: Final = re.compile(r"[A-Za-z0-9][\w.:-]{0,63}", re.ASCII)
LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # twenty times as fast, where it is built
ALL: Final = "all"  # by custom, all devices at once under a name of their own
MODEL, MEMORY = "gpuplatform/model", "gpuplatform/memory"  # annotations, since CDI says neither


def find(folder: Path, protected: Sequence[Path]) -> Iterator[Accelerator | str]:
    """Yield the devices of a folder's specifications, and a sentence for each file that is refused.

    No container gets anything of the `protected` paths.
    """
    try:
        _check_folder(folder)
        paths = sorted(path for path in folder.iterdir() if path.suffix in {".json", ".yaml"})
    except FileNotFoundError:
        return
    except (OSError, CdiError) as error:
        yield f"{folder} is not read: {_words(error)}."
        return
    if len(paths) > MAX_FILES:
        yield f"{folder} has more than {MAX_FILES} specifications; the others are not read."
    for path in paths[:MAX_FILES]:
        try:
            yield from tuple(_devices(_read(path), protected))  # all of a file, or none
        except (OSError, CdiError, yaml.YAMLError, RecursionError, ValueError) as error:
            yield f"{path} is not used: {_words(error)}."


def _words(error: Exception) -> str:
    text = (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__
    return " ".join(text.split())[:300].rstrip(".")


def _read(path: Path) -> object:
    """Return the document in a file. Raises OSError, CdiError, YAMLError, RecursionError and ValueError."""
    with regular_file(path, os.O_NOFOLLOW) as descriptor:
        _check_owner(os.fstat(descriptor))
        raw = bounded(descriptor)
    if path.suffix == ".json":
        return json.loads(raw)
    depth = 0
    for event in yaml.parse(raw, LOADER):  # nothing is built yet
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH or isinstance(event, yaml.AliasEvent):  # by which a small file becomes a large document
            raise CdiError("it has aliases of YAML, or is nested too deeply")
    return yaml.load(raw, LOADER)  # noqa: S506, a safe loader


def bounded(descriptor: int) -> bytes:
    """Return what a file has. Raises OSError, and CdiError where that is too much."""
    raw = os.read(descriptor, FILE_BYTES + 1)
    if len(raw) > FILE_BYTES:
        raise CdiError(f"it is larger than {FILE_BYTES // 1024} KiB")
    return raw


def _check_folder(folder: Path) -> None:
    """Raise CdiError unless root alone may change this folder, or put another in its place. Raises OSError."""
    _check_owner(folder.stat())
    real = folder.resolve()
    for each in (*folder.absolute().parents, folder, *real.parents):
        found = each.lstat()
        may_rename = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX
        if found.st_uid != 0 or (may_rename and not stat.S_ISLNK(found.st_mode)):
            raise CdiError(f"others than root may put another in its place, by {each} (chown root, chmod go-w)")


def _check_owner(found: os.stat_result) -> None:
    """Raise CdiError unless root alone may change this."""
    if found.st_uid != 0 or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise CdiError("others than root may change it (chown root, chmod go-w)")


def _devices(document: object, protected: Sequence[Path]) -> Iterator[Accelerator]:
    """Yield the devices of a specification. Raises CdiError where it is none."""
    spec = mapping(document, "the specification")
    version, kind = spec.get("cdiVersion"), spec.get("kind")
    if not isinstance(version, str) or not VERSION.fullmatch(version):
        raise CdiError(f"its cdiVersion is {str(version)[:20]!r}; versions up to 1.0 are understood")
    if not isinstance(kind, str) or (problem := kind_problem(kind)):
        raise CdiError(f"its kind is {str(kind)[:80]!r}. {problem if isinstance(kind, str) else ''}".strip())
    common = mapping(spec.get("containerEdits", {}), "containerEdits")
    devices = listed(spec, "devices", MAX_DEVICES)
    named = {_name(device): mapping(device, "a device") for device in devices}
    if len(named) != len(devices):
        raise CdiError("two of its devices have one name")
    for name, device in named.items():
        if name != ALL:
            yield _device(kind, name, device, common, protected)


def _name(device: object) -> str:
    name = mapping(device, "a device").get("name")
    if not isinstance(name, str) or not DEVICE_NAME.fullmatch(name):
        raise CdiError(f"a device has no name, or one that is not allowed: {str(name)[:80]!r}")
    return name


def _device(
    kind: str, name: str, device: Mapping[str, Any], common: Mapping[str, Any], protected: Sequence[Path]
) -> Accelerator:
    said = mapping(device.get("annotations", {}), "annotations")
    own = mapping(device.get("containerEdits", {}), "containerEdits")
    bare = Accelerator(
        kind=kind,
        name=name,
        model=str(said.get(MODEL) or kind),
        needs_engine=cdi_edits.has_hooks(common) or cdi_edits.has_hooks(own),
    )
    try:
        edits = cdi_edits.edits(common, protected) + cdi_edits.edits(own, protected)
        return replace(bare, memory_bytes=bytes_from(str(said.get(MEMORY, "0"))), edits=edits)
    except ValueError as error:
        return replace(bare, problem=_words(error))


def apart(found: Sequence[Accelerator]) -> Iterator[Accelerator]:
    """Yield each device once: further names of one, as of an index and a UUID, are left out, and so are bundles.

    A bundle has all nodes of another device and more, so that both would be lent twice.
    """
    nodes = [frozenset(node.source for node in each.edits.nodes) for each in found]
    seen: set[object] = set()
    for each, mine in zip(found, nodes, strict=True):
        same = each.kind, mine or each.edits
        if not each.problem and same in seen:
            continue
        if not each.problem:
            seen.add(same)
        if any(other and other < mine for other, its in zip(nodes, found, strict=True) if its.kind == each.kind):
            bundle = f"it has all of another device of its kind, and more ({', '.join(sorted(mine))})"
            yield replace(each, problem=each.problem or bundle)
        else:
            yield each
