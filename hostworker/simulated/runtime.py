"""The in-memory engine of one simulated host, whose containers are used as simulated programs would use them."""

import itertools
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from engine.containers import container_name
from hostworker.enforcement.telemetry import GpuSample
from hostworker.gpus.watchdog import SessionGpuUse
from hostworker.runtime.memory.engine import MemoryContainer
from hostworker.runtime.memory.runtime import MemoryRuntime
from hostworker.runtime_protocol import ContainerPhase, ContainerSpec, ContainerState, ContainerUse, Key
from hostworker.simulated.programs import Program
from resources.gpus.shares import share_bytes

IDLE_DEGREES: Final = 31
IDLE_WATTS: Final = 55
FULL_DEGREES: Final = 44  # above those
FULL_WATTS: Final = 290
SERIAL_BITS: Final = 200  # of the first container id of a host: of 256, so that no two are the same


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedContainer:
    """A container with its program, and when it was started, by the monotonic clock; None before."""

    spec: ContainerSpec
    container_id: str
    program: Program
    started_at: float | None

    def age(self, now: float) -> float:
        """Return for how many seconds it has run."""
        return now - self.started_at if self.started_at is not None else 0.0


@dataclass(slots=True)
class SimulatedContainers:
    """The containers of all simulated hosts of a process, by id: what their gateway shows."""

    by_id: dict[str, SimulatedContainer] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


class SimulatedRuntime(MemoryRuntime):
    """The containers of one host; ids are unique among all hosts of the process, which share `registry`.

    Implements Runtime.
    """

    def __init__(self, installation: str, host: str, registry: SimulatedContainers) -> None:
        super().__init__(installation, host, f"memory://{host}")
        self.engine.serial = itertools.count(secrets.randbits(SERIAL_BITS))
        self._registry = registry
        self._mine: dict[Key, SimulatedContainer] = {}

    def create(self, spec: ContainerSpec) -> str:
        container_id = super().create(spec)
        key = spec.session, spec.attempt
        with self._registry.lock:
            if key not in self._mine:
                self._note(key, spec, container_id, None)
        return container_id

    def start(self, session: str, attempt: int, announce: Callable[[str], None] = lambda address: None) -> None:
        super().start(session, attempt, announce)
        key = session, attempt
        with self._registry.lock:
            mine = self._mine.get(key)
            if mine and mine.started_at is None:
                self._note(key, mine.spec, mine.container_id, time.monotonic())

    def remove(self, session: str, attempt: int) -> None:
        super().remove(session, attempt)
        with self._registry.lock:
            mine = self._mine.pop((session, attempt), None)
            if mine:
                self._registry.by_id.pop(mine.container_id, None)

    def restore(self, spec: ContainerSpec, container_id: str, age_seconds: float) -> None:
        """Let the container of a session run that an earlier process of simulated hosts has started."""
        key = spec.session, spec.attempt
        state = ContainerState(
            session=spec.session, attempt=spec.attempt, container_id=container_id, phase=ContainerPhase.RUNNING
        )
        with self.engine.lock, self._registry.lock:
            self.engine.containers[container_name(*key)] = MemoryContainer(self._owner, spec, state)
            self._note(key, spec, container_id, time.monotonic() - age_seconds)

    def uses(self) -> dict[Key, ContainerUse]:
        now = time.monotonic()
        return {key: _use_of(self._mine[key], now) for key in super().uses() if key in self._mine}

    def logs(self, session: str, attempt: int, tail: int) -> str:
        mine = self._mine.get((session, attempt))
        lines = mine.program.output(mine.age(time.monotonic()))[-tail:] if mine and tail > 0 else []
        return "".join(f"{line}\n" for line in lines)

    def gpu_uses(self) -> Mapping[str, SessionGpuUse]:
        """Return what each running session uses of its GPUs, by its id."""
        now = time.monotonic()
        running = [self._mine[key] for key in super().uses() if key in self._mine]
        return {each.spec.session: _gpu_use_of(each, now) for each in running if each.spec.gpus}

    def sample(self, uuid: str) -> GpuSample:
        now, busy, memory_bytes = time.monotonic(), 0.0, 0
        for key in super().uses():
            for grant in self._mine[key].spec.gpus if key in self._mine else ():
                if grant.uuid == uuid:
                    mine = self._mine[key]
                    held = share_bytes(grant.memory_bytes, grant.share_milli, grant.gpu_milli)
                    busy += mine.program.gpu_busy(mine.age(now)) * grant.share_milli / grant.gpu_milli
                    memory_bytes += mine.program.gpu_memory_bytes(mine.age(now), held)
        busy = min(1.0, busy)
        return GpuSample(
            utilisation=round(100 * busy),
            memory_used_bytes=memory_bytes,
            temperature=round(IDLE_DEGREES + FULL_DEGREES * busy),
            power=round(IDLE_WATTS + FULL_WATTS * busy),
        )

    def end_finished(self) -> list[ContainerState]:
        """End the batch programs that are done; return the states of their containers."""
        now, ended = time.monotonic(), []
        for key in super().uses():
            mine = self._mine.get(key)
            if mine and mine.spec.command and mine.age(now) > mine.program.batch_seconds():
                self.end(*key, exit_code=mine.program.exit_code())
                ended += [state for state in self.containers() if (state.session, state.attempt) == key]
        return ended

    def _note(self, key: Key, spec: ContainerSpec, container_id: str, started_at: float | None) -> None:
        """Register the container; the caller holds the registry's lock."""
        mine = SimulatedContainer(
            spec=spec, container_id=container_id, program=Program(spec.session), started_at=started_at
        )
        self._mine[key] = self._registry.by_id[container_id] = mine


def _use_of(mine: SimulatedContainer, now: float) -> ContainerUse:
    seconds, program = mine.age(now), mine.program
    return ContainerUse(
        cpu_nanoseconds=program.cpu_nanoseconds(seconds, mine.spec.cpu),
        memory_bytes=program.memory_bytes(seconds, mine.spec.memory_bytes),
        cache_bytes=0,
        received_bytes=program.network_bytes(seconds),
        sent_bytes=program.network_bytes(seconds) // 2,
    )


def _gpu_use_of(mine: SimulatedContainer, now: float) -> SessionGpuUse:
    seconds, grants = mine.age(now), mine.spec.gpus
    held = sum(share_bytes(grant.memory_bytes, grant.share_milli, grant.gpu_milli) for grant in grants)
    parts = sum(grant.share_milli / grant.gpu_milli for grant in grants) / len(grants)
    return SessionGpuUse(
        memory_bytes=mine.program.gpu_memory_bytes(seconds, held),
        utilisation=min(100, round(100 * mine.program.gpu_busy(seconds) * parts)),
    )
