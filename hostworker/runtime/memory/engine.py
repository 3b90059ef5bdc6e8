"""The engine in memory on which MemoryRuntime runs, and what tests may do to it: faults, logs, images, programs."""

import itertools
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from engine.containers import container_name
from hostworker.runtime_protocol import (
    ContainerPhase,
    ContainerRuntimeError,
    ContainerSpec,
    ContainerState,
    ContainerUse,
    DiskSpace,
    ExecResult,
    Key,
)

KILLED: Final = 137  # exit code of a process ended by SIGKILL

NOTHING_USED: Final = ContainerUse(cpu_nanoseconds=0, memory_bytes=0, cache_bytes=0)

Owner = tuple[str, str]  # installation, host
Program = Callable[[Sequence[str], Mapping[str, str]], ExecResult]  # of a command and its environment


@dataclass(slots=True)
class MemoryContainer:
    """A container, in whatever state."""

    owner: Owner
    spec: ContainerSpec
    state: ContainerState
    log: list[str] = field(default_factory=list)
    use: ContainerUse = NOTHING_USED
    written_bytes: int = 0
    made_files: int = 0
    is_flooding: bool = False
    is_slowed: bool = False


@dataclass(slots=True)
class InjectedFailure:
    """What a coming operation is to raise, before or after it takes effect."""

    error: ContainerRuntimeError
    happens_after: bool


@dataclass(slots=True)
class MemoryEngine:
    """What the runtimes of one engine share. Everything in it is read and written under `lock`."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    containers: dict[str, MemoryContainer] = field(default_factory=dict)  # by engine-wide unique name
    missing_images: dict[str, bool] = field(default_factory=dict)  # not on the host; whether a pull gets it
    saved: dict[Owner, dict[Key, int]] = field(default_factory=dict)  # what saved containers wrote, by owner
    listeners: list[tuple[Owner, "queue.SimpleQueue[ContainerState]"]] = field(default_factory=list)
    failures: dict[tuple[Owner, str], list[InjectedFailure]] = field(default_factory=dict)  # by owner and operation
    program: Program = lambda command, environment: ExecResult(exit_code=0, output="")
    disk_space: DiskSpace | None = None
    serial: Iterator[int] = field(default_factory=lambda: itertools.count(1))


_engines: dict[str, MemoryEngine] = {}


class MemoryEngineControl:
    """One owner's hold on the in-memory engine called `engine_url`, with everything that can go wrong on it."""

    def __init__(self, owner: Owner, engine_url: str) -> None:
        self._owner = owner
        self.engine = _engines.setdefault(engine_url, MemoryEngine())

    def end(self, session: str, attempt: int, exit_code: int = 0, out_of_memory: bool = False) -> None:
        """Let the container's main process end by itself, or by the kernel for want of memory."""
        with self.engine.lock:
            self.end_container(self.find(session, attempt), KILLED if out_of_memory else exit_code, out_of_memory)

    def kill_for_memory(self, session: str, attempt: int) -> None:
        """Let the kernel kill a process that is not the container's main one, for want of memory."""
        with self.engine.lock:
            if container := self.find(session, attempt):
                self._tell(container, replace(container.state, out_of_memory=True))

    def change(self, session: str, attempt: int, **fields: object) -> None:
        """Let the container have these values of MemoryContainer from now on, such as what it uses or has written."""
        with self.engine.lock:
            if container := self.find(session, attempt):
                for name, value in fields.items():
                    setattr(container, name, value)

    def set_disk_space(self, space: DiskSpace | None) -> None:
        """Let the engine's disk have this space."""
        with self.engine.lock:
            self.engine.disk_space = space

    def saved(self) -> dict[Key, int]:
        """Return what the saved containers of this owner had written; to change it, hold the engine's lock."""
        return self.engine.saved.setdefault(self._owner, {})

    def lose_container(self, session: str, attempt: int) -> None:
        """Make the container disappear without any event, as when the engine loses its data."""
        with self.engine.lock:
            self.engine.containers.pop(container_name(session, attempt), None)

    def write_log(self, session: str, attempt: int, line: str) -> None:
        """Let the container write a line."""
        with self.engine.lock:
            if container := self.find(session, attempt):
                container.log.append(line)

    def set_exec_handler(self, program: Program) -> None:
        """Have `execute` do this in every container of the engine."""
        with self.engine.lock:
            self.engine.program = program

    def spec(self, session: str, attempt: int) -> ContainerSpec | None:
        """Return what the container was created from, or None when it is not there."""
        with self.engine.lock:
            container = self.find(session, attempt)
            return container.spec if container else None

    def remove_image(self, reference: str, can_pull: bool = False) -> None:
        """Take the image off the host, and out of the registry too unless it can be pulled."""
        with self.engine.lock:
            self.engine.missing_images[reference] = can_pull

    def fail_next(
        self, operation: str, error: ContainerRuntimeError, times: int = 1, happens_after: bool = False
    ) -> None:
        """Let the next calls of the method `operation` by this owner raise `error`, on any instance of the engine.

        With `happens_after` the call takes effect first, as when the engine's answer gets lost. For `exits` each
        failure breaks one stream.
        """
        failures = [InjectedFailure(error, happens_after) for _ in range(times)]
        with self.engine.lock:
            self.engine.failures.setdefault((self._owner, operation), []).extend(failures)

    @contextmanager
    def operation(self, name: str) -> Iterator[None]:
        """Hold the engine's lock for the whole operation, and let it fail where that was asked for."""
        with self.engine.lock:
            failures = self.engine.failures.get((self._owner, name), [])
            failure = failures.pop(0) if failures else None
            if failure and not failure.happens_after:
                raise failure.error
            yield
            if failure:
                raise failure.error

    def find(self, session: str, attempt: int) -> MemoryContainer | None:
        """Return the owner's container with this key; the caller holds the engine's lock."""
        container = self.engine.containers.get(container_name(session, attempt))
        return container if container and container.owner == self._owner else None

    def running(self) -> dict[Key, MemoryContainer]:
        """Return the owner's running containers; the caller holds the engine's lock."""
        return {
            (each.spec.session, each.spec.attempt): each
            for each in self.engine.containers.values()
            if each.owner == self._owner and each.state.phase is ContainerPhase.RUNNING
        }

    def end_container(self, container: MemoryContainer | None, exit_code: int, out_of_memory: bool = False) -> None:
        """Move a running container to EXITED and tell the listeners; any other is left alone."""
        if container is None or container.state.phase is not ContainerPhase.RUNNING:
            return
        container.state = replace(
            container.state, phase=ContainerPhase.EXITED, exit_code=exit_code, out_of_memory=out_of_memory
        )
        self._tell(container, container.state)

    def _tell(self, container: MemoryContainer, state: ContainerState) -> None:
        for owner, inbox in self.engine.listeners:
            if owner == container.owner:
                inbox.put(state)
