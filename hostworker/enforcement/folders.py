"""The folders of this host's sessions: limits, accounting region and figures, kept beside their containers."""

import json
import re
import shutil
import threading
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from fgpu.limits import LOOK_MS, REGION_BYTES, GpuLimit, format_limits, parse_head, parse_limits
from fgpu.limits import prepare as write_limits
from fgpu.region import HOST_MEMORY, used_bytes
from hostworker.enforcement.programs import write_whole
from hostworker.enforcement.shares import free_turn, limits, share_memory, share_percent, turn_length
from hostworker.privileged.host_privileges import HostPrivileges
from hostworker.runtime_protocol import ContainerSpec, GpuGrant, Key, ResizeError
from resources.amounts.units import size_text
from resources.gpus.shares import Sharing
from resources.gpus.tiers import Tier

LIMITS: Final = "limits.conf"
REGION: Final = "region"
VARIABLES: Final = "environment"
BY_DRIVER: Final = "by-driver.json"
SETTLE_SECONDS: Final = 20 * LOOK_MS / 1000  # processes look at the new limits, allocations by the old ones end
BLOCK_BYTES: Final = 512  # of st_blocks, see stat(2)
_NAME: Final = re.compile(r"(?P<session>.+)-(?P<attempt>[0-9]+)")


@dataclass(frozen=True, slots=True)
class SessionFolders:
    """One folder per attempt below `root`, which belongs to this host alone."""

    root: Path
    privileges: HostPrivileges = field(default_factory=HostPrivileges)
    lock: threading.Lock = field(default_factory=threading.Lock)  # turns and CPUs are given out one by one

    def path(self, key: Key) -> Path:
        """Return where the attempt's files are, or would be."""
        return self.root / f"{key[0]}-{key[1]}"

    def keys(self) -> set[Key]:
        """Return the attempts of which there are files."""
        matches = (_NAME.fullmatch(folder.name) for folder in self.root.glob("*-*"))
        return {(match["session"], int(match["attempt"])) for match in matches if match}

    def prepare(self, spec: ContainerSpec, context_memory: int) -> tuple[Path, Path]:
        """Write the files of an attempt that is about to start, or leave them where they are complete.

        Return the limits file and the accounting region. A container may have been started on them already, by a worker
        that has died since: its processes have them mapped, and other files would not be theirs. Page-locked memory,
        which the NVIDIA driver takes outside of the container's cgroup, is bounded by the session's memory.
        """
        key, gpus = (spec.session, spec.attempt), spec.gpus
        limits_path, region_path = self.path(key) / LIMITS, self.path(key) / REGION
        with self.lock:
            starts = {uuid: start for uuid, start, _ in _turns(limits_path)}
            starts = starts or {gpu.uuid: self._free_start(key, gpu) for gpu in gpus}
            wanted = limits(gpus, starts, context_memory)
            texts = [format_limits(wanted, sharing=mode, pinned_bytes=spec.memory_bytes) for mode in ("cap", "burst")]
            if not _is_complete(limits_path, region_path, texts):
                self.path(key).mkdir(parents=True, exist_ok=True)
                by_driver = {gpu.uuid: share_memory(gpu) for gpu in gpus if gpu.tier is Tier.KERNEL}
                write_whole(self.path(key) / BY_DRIVER, json.dumps(by_driver).encode(), 0o444)
                sharing: Literal["cap", "burst"] = "burst" if spec.sharing is Sharing.BURST else "cap"
                write_limits(self.path(key), wanted, sharing=sharing, pinned_bytes=spec.memory_bytes)
                self.privileges.give_to_root(limits_path)
        return limits_path, region_path

    def resize(self, spec: ContainerSpec, before: ContainerSpec, context_memory: int, main_pid: int) -> str:
        """Rewrite the limits of a running attempt for the amounts of `spec` and return them.

        Raises ResizeError where its processes use more; then they are those of `before`. This is read before and once
        more, under the new limits, when nothing is allocated under the old ones any more: also where a worker that died
        has written the new ones already.
        """
        key = (spec.session, spec.attempt)
        path = self.path(key) / LIMITS
        text = path.read_text()
        starts = {limit.uuid: limit.phase_ms for limit in parse_limits(text)}
        wanted = limits(spec.gpus, starts, context_memory)
        sharing = parse_head(text)[0]
        new = format_limits(wanted, sharing=sharing, pinned_bytes=spec.memory_bytes)
        old = format_limits(
            limits(before.gpus, starts, context_memory), sharing=sharing, pinned_bytes=before.memory_bytes
        )
        if text == new == old:
            return new
        try:
            self._check_use(key, wanted, spec.memory_bytes, main_pid)
            self._hold(key, spec, new)
            time.sleep(SETTLE_SECONDS)
            self._check_use(key, wanted, spec.memory_bytes, main_pid)
        except ResizeError:
            self._hold(key, before, old)
            raise
        return new

    def _hold(self, key: Key, spec: ContainerSpec, text: str) -> None:
        """Write the limits of `spec`, whose file has this text, for the hook and for the driver."""
        path = self.path(key) / LIMITS
        by_driver = {gpu.uuid: share_memory(gpu) for gpu in spec.gpus if gpu.tier is Tier.KERNEL}
        write_whole(self.path(key) / BY_DRIVER, json.dumps(by_driver).encode(), 0o444)
        with self.lock:
            if path.read_text() != text:
                self.privileges.rewrite_limits(path, text)

    def _check_use(self, key: Key, wanted: Sequence[GpuLimit], pinned_bytes: int, main_pid: int) -> None:
        """Raise ResizeError where the attempt's processes use more than that of a GPU, or of page-locked memory."""

        def is_gone(pid: int, started: int) -> bool:
            found = self.privileges.process_started(main_pid, pid)
            return found is None or (started > 0 and found != started)

        try:
            used = used_bytes(self.path(key) / REGION, is_gone)
        except ValueError as error:
            raise ResizeError("How much GPU memory it uses cannot be read.") from error
        for held, limit in zip(used, wanted, strict=False):
            if held > limit.memory_bytes:
                raise ResizeError(
                    f"It uses {size_text(held)} of GPU memory, too much for a share of {size_text(limit.memory_bytes)}."
                )
        if used[HOST_MEMORY] > pinned_bytes:
            locked, most = size_text(used[HOST_MEMORY]), size_text(pinned_bytes)
            raise ResizeError(f"It has page-locked {locked} of memory, too much for {most}.")

    def charged_memory(self, key: Key) -> dict[str, int] | None:
        """Return {UUID: bytes} that the hook has charged to the attempt's processes; None where that cannot be read.

        Those that have died count until another asks for what they held.
        """
        try:
            by_index = used_bytes(self.path(key) / REGION, lambda pid, started: False)
            uuids = [limit.uuid for limit in parse_limits((self.path(key) / LIMITS).read_text())]
        except (OSError, ValueError):
            return None
        return dict(zip(uuids, by_index, strict=False))

    def write_variables(self, key: Key, script: str) -> Path:
        """Write the lines that set the attempt's variables and return the file; others on this host cannot read it.

        A container may have it mounted already, and then keeps what it had.
        """
        path = self.path(key) / VARIABLES
        path.parent.mkdir(parents=True, exist_ok=True)
        path.parent.chmod(0o700)
        if not path.exists():
            write_whole(path, script.encode(), 0o444)
        return path

    def written_bytes(self) -> dict[Key, int]:
        """Return what sessions take of the disk by writing to their regions, which they may make any length."""
        found = {}
        for key in self.keys():
            with suppress(OSError):  # just discarded, or not prepared yet
                found[key] = max(0, (self.path(key) / REGION).stat().st_blocks * BLOCK_BYTES - REGION_BYTES)
        return found

    def driver_limits(self, key: Key) -> dict[str, int]:
        """Return {UUID: bytes} of the devices on which the driver itself is to limit the attempt's memory."""
        limits_by_uuid: dict[str, int] = json.loads((self.path(key) / BY_DRIVER).read_text())
        return limits_by_uuid

    def _free_start(self, key: Key, gpu: GpuGrant) -> int:
        """Return where in the frame the session's turn shall begin, given those of the device's other sessions."""
        others = (turn for other in self.keys() - {key} for turn in _turns(self.path(other) / LIMITS))
        return free_turn([(start, length) for uuid, start, length in others if uuid == gpu.uuid], share_percent(gpu))

    def discard(self, key: Key) -> None:
        """Remove the attempt's files; gone already is success."""
        shutil.rmtree(self.path(key), ignore_errors=True)


def _turns(limits_file: Path) -> list[tuple[str, int, int]]:
    """Return (UUID, start, length) of the turns in a limits file, in ms; none where there is no valid file."""
    try:
        limits_of_file = parse_limits(limits_file.read_text())
    except (FileNotFoundError, ValueError):  # not written yet, just discarded, or damaged, which its hook refuses
        return []
    return [(limit.uuid, limit.phase_ms, turn_length(limit.sm_percent)) for limit in limits_of_file]


def _is_complete(limits_path: Path, region_path: Path, texts: Collection[str]) -> bool:
    """Return whether both files are there as they are to be; limits that are not root's, the hook refuses."""
    if not region_path.exists() or region_path.stat().st_size != REGION_BYTES:
        return False
    return _is_of_root(limits_path) and limits_path.read_text() in texts


def _is_of_root(path: Path) -> bool:
    return path.exists() and path.stat().st_uid == 0
