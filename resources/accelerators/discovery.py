"""Finds this host's accelerators by all that may find them: finders of this room, plug-ins, and CDI files.

A plug-in is an entry point of the group `gpuplatform.accelerators`: a callable as `devices.Finder` says.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from itertools import islice
from pathlib import Path
from typing import Final

from resources.accelerators import amd, cdi_files, intel
from resources.accelerators.cdi_files import DEVICE_NAME
from resources.accelerators.devices import Accelerator, Finder
from resources.accelerators.kinds import NVIDIA, kind_problem

GROUP: Final = "gpuplatform.accelerators"
SHIPPED: Final[Mapping[str, Finder]] = {"amd": amd.find, "intel": intel.find}
MAX_ACCELERATORS: Final = 256  # of a finder or folder
MODEL_LENGTH: Final = 96
UID_LENGTH: Final = 64
PROBLEM_LENGTH: Final = 200
NEEDS_ENGINE: Final = (
    "its CDI specification has hooks, which the container engine's API cannot apply: "
    "Docker 25 or later with CDI is needed, which lists it"
)
_NAMESPACE: Final = uuid.UUID("1d9a8a0e-6f0e-4d5c-9b0d-0d0c5f5c0f7b")  # of ids that the hardware does not say


@dataclass(frozen=True, slots=True)
class Found:
    """The accelerators that a host can lend, each with an id, and a sentence for each other one and each fault."""

    accelerators: tuple[Accelerator, ...] = ()
    problems: tuple[str, ...] = ()
    faults: Mapping[str, str] = field(default_factory=dict)  # of those that are not in order, by their ids


NOTHING: Final = Found()


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorSource:
    """Where the accelerators of the host with this name are looked for; containers get nothing of `protected` paths."""

    host_name: str
    cdi_folders: tuple[Path, ...] = ()
    protected: tuple[Path, ...] = ()
    root: Path = Path("/")

    def find(self, engine_devices: frozenset[str] = frozenset(), protected: Sequence[Path] = ()) -> Found:
        """Return what is there now; `engine_devices` are the names of CDI devices that the engine gives itself.

        `protected` paths are so as well.
        """
        problems: list[str] = []
        found: dict[str, Accelerator] = {}
        faults: dict[str, str] = {}
        kinds: set[str] = {NVIDIA}  # which NVML finds
        for origin, finder in (*SHIPPED.items(), *_plug_ins(problems)):
            mine = _asked(origin, finder, self.root, problems)
            self._enter(mine, frozenset(kinds), found, problems, faults)
            kinds.update(each.kind for each in mine if isinstance(each.kind, str))
        listed: list[Accelerator] = []
        for folder in reversed(self.cdi_folders):  # the last one counts most, as for engines
            for each in islice(cdi_files.find(folder, (*self.protected, *protected)), MAX_ACCELERATORS):
                problems.append(each) if isinstance(each, str) else listed.append(each)
        able = (
            replace(each, problem=NEEDS_ENGINE)
            if each.needs_engine and not each.problem and each.cdi_name not in engine_devices
            else each
            for each in cdi_files.apart(listed)
        )
        self._enter(able, frozenset(kinds), found, problems, faults)
        return Found(tuple(found.values()), tuple(problems), faults)

    def _enter(
        self,
        found: Iterable[Accelerator],
        others: frozenset[str],
        known: dict[str, Accelerator],
        problems: list[str],
        faults: dict[str, str],
    ) -> None:
        """Enter those that are in order, by their ids, and say of the others what is wrong.

        Kinds that another finder has found are its own.
        """
        for each in found:
            if wrong := _malformed(each):
                problems.append(f"An accelerator is left out: {wrong}.")
            elif each.kind in others:
                continue
            elif each.problem:
                problem = _printable(each.problem, PROBLEM_LENGTH)
                problems.append(f"{each.cdi_name} is not lent: {problem}.")
                faults[self._uid(each)] = problem
            elif (uid := self._uid(each)) in known:
                problems.append(f"{each.cdi_name} is not lent: {known[uid].cdi_name} is the same device.")
            else:
                known[uid] = replace(each, uid=uid, model=_printable(each.model))

    def _uid(self, each: Accelerator) -> str:
        """Return the id of a device: its own, or one that follows from the names of the host and of the device."""
        prefix = each.kind.rpartition("/")[2].upper()[:20]
        return each.uid or f"{prefix}-{uuid.uuid5(_NAMESPACE, f'{self.host_name}/{each.cdi_name}')}"


def _plug_ins(problems: list[str]) -> Iterator[tuple[str, Finder]]:
    for point in entry_points(group=GROUP):
        try:
            yield point.name, point.load()
        except Exception as error:  # whatever it is: it is another's code
            problems.append(f"The plug-in {point.name} cannot be loaded: {_printable(str(error))}.")


def _asked(origin: str, finder: Finder, root: Path, problems: list[str]) -> list[Accelerator]:
    try:
        return [each for each in islice(finder(root), MAX_ACCELERATORS) if isinstance(each, Accelerator)]
    except Exception as error:  # likewise
        problems.append(f"The finder {origin} fails: {_printable(f'{type(error).__name__}: {error}')}.")
        return []


def _malformed(each: Accelerator) -> str:
    """Return what of it cannot be stored; "" where all can."""
    texts = (each.kind, each.name, each.model, each.uid, each.problem)
    if not all(isinstance(text, str) for text in texts) or type(each.memory_bytes) is not int:
        return "its finder gives it values of other types"
    if problem := kind_problem(each.kind):
        return f"its kind is {each.kind[:80]!r}. {problem.rstrip('.')}"
    if not DEVICE_NAME.fullmatch(each.name):
        return f"{each.kind} has the name {each.name[:80]!r}"
    if not 0 <= each.memory_bytes < 1 << 63:
        return f"{each.cdi_name} says that it has {each.memory_bytes} bytes"
    if len(each.uid) > UID_LENGTH or _printable(each.uid) != each.uid:
        return f"{each.cdi_name} has a malformed id"
    return ""


def _printable(text: str, length: int = MODEL_LENGTH) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)[:length].strip()
