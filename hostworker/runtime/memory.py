"""A container engine in this process's memory: the whole Runtime without containers, for tests, races and laptops.

Every MemoryRuntime of one `engine_url` sees the same containers, as every worker of a host sees the same engine. Beside
the protocol it offers what goes wrong in life: `end`, `lose_container`, `remove_image`, `write_log`, `fail_next`; and
`set_exec_handler`, for it runs no programs.
"""

import ipaddress
import itertools
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from engine.containers import container_name
from hostworker.enforcement.enforcer import Enforcer
from hostworker.runtime.base import (
    ContainerPhase,
    ContainerRuntimeError,
    ContainerSpec,
    ContainerState,
    ExecResult,
    ExecutionError,
    ImageUnavailableError,
    Key,
    StartError,
    no_op,
)

KILLED: Final = 137  # exit code of a process ended by SIGKILL
STOPPED_CHECK_SECONDS: Final = 0.1

_FIRST_ADDRESS: Final = ipaddress.IPv4Address("10.255.0.0")
_ADDRESSES: Final = 1 << 16

Owner = tuple[str, str]  # installation, host
Program = Callable[[Sequence[str], Mapping[str, str]], ExecResult]  # of a command and its environment


@dataclass(slots=True)
class _Container:
    owner: Owner
    spec: ContainerSpec
    state: ContainerState
    log: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Failure:
    error: ContainerRuntimeError
    happens_after: bool


@dataclass(slots=True)
class _Engine:
    """What the runtimes of one engine share. Everything in it is read and written under `lock`."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    containers: dict[str, _Container] = field(default_factory=dict)  # by engine-wide unique name
    missing_images: dict[str, bool] = field(default_factory=dict)  # not on the host; whether a pull gets it
    listeners: list[tuple[Owner, "queue.SimpleQueue[ContainerState]"]] = field(default_factory=list)
    failures: dict[tuple[Owner, str], list[_Failure]] = field(default_factory=dict)  # by owner and operation
    program: Program = lambda command, environment: ExecResult(exit_code=0, output="")
    serial: Iterator[int] = field(default_factory=lambda: itertools.count(1))


_engines: dict[str, _Engine] = {}


def _address(container: _Container) -> str:
    return str(_FIRST_ADDRESS + int(container.state.container_id, 16) % _ADDRESSES)


class MemoryRuntime:
    """The containers of one installation and host name on the in-memory engine called `engine_url`."""

    def __init__(
        self,
        installation: str,
        host: str,
        engine_url: str = "memory://",
        enforcer: Enforcer | None = None,
        sandboxes: int = 0,
    ) -> None:
        self._owner: Owner = (installation, host)
        self._engine = _engines.setdefault(engine_url, _Engine())

    def ensure_image(self, reference: str, on_progress: Callable[[str], None]) -> None:
        """Have the image: every reference is on the host, save those of `remove_image`; see Runtime."""
        with self._operation("ensure_image"):
            if reference not in self._engine.missing_images:
                return
            on_progress(f"Pulling {reference}")
            if not self._engine.missing_images[reference]:
                raise ImageUnavailableError(
                    f"Image {reference} could not be pulled: the registry has no such image or tag."
                )
            del self._engine.missing_images[reference]

    def create(self, spec: ContainerSpec) -> str:
        """Create the container, or adopt the one with its key; see Runtime."""
        name = container_name(spec.session, spec.attempt)
        with self._operation("create"):
            if existing := self._engine.containers.get(name):
                if existing.owner != self._owner:
                    raise StartError(f"The name {name} is taken by a container that is not the platform's.")
                return existing.state.container_id
            if spec.image in self._engine.missing_images:
                raise ImageUnavailableError(f"Image {spec.image} is not on the host.")
            state = ContainerState(
                session=spec.session,
                attempt=spec.attempt,
                container_id=f"{next(self._engine.serial):064x}",
                phase=ContainerPhase.CREATED,
            )
            self._engine.containers[name] = _Container(self._owner, spec, state)
            return state.container_id

    def start(self, session: str, attempt: int, announce: Callable[[str], None] = no_op) -> None:
        """Start the created container; see Runtime. One that has ended is not started again."""
        with self._operation("start"):
            container = self._find(session, attempt)
            if container is None:
                raise StartError("The container is not there.")
            if container.state.phase is ContainerPhase.EXITED:
                raise StartError("The container has already ended.")
            announce(_address(container))
            if container.state.phase is ContainerPhase.CREATED:
                container.state = replace(container.state, phase=ContainerPhase.RUNNING)
                container.log.append(f"{session} ready")

    def address(self, session: str, attempt: int) -> str | None:
        """Return an address that nothing has; see Runtime."""
        with self._operation("address"):
            container = self._find(session, attempt)
            if container is None or container.state.phase is not ContainerPhase.RUNNING:
                return None
            return _address(container)

    def stop(self, session: str, attempt: int, grace_seconds: int) -> None:
        """End the container at once, for its processes know no delay; see Runtime."""
        with self._operation("stop"):
            self._end(self._find(session, attempt), exit_code=0)

    def remove(self, session: str, attempt: int) -> None:
        """Remove the container; see Runtime."""
        with self._operation("remove"):
            if container := self._find(session, attempt):
                del self._engine.containers[container_name(session, attempt)]
                self._end(container, exit_code=KILLED)

    def containers(self) -> list[ContainerState]:
        """Return the state of every container of this installation and host; see Runtime."""
        with self._operation("containers"):
            return [each.state for each in self._engine.containers.values() if each.owner == self._owner]

    def leftover_attempts(self) -> set[Key]:
        """Return nothing: there is no GPU here whose share would need files; see Runtime."""
        return set()

    def logs(self, session: str, attempt: int, tail: int) -> str:
        """Return the last lines that `write_log` put there; see Runtime."""
        with self._operation("logs"):
            container = self._find(session, attempt)
            lines = container.log[-tail:] if container and tail > 0 else []
            return "".join(f"{line}\n" for line in lines)

    def execute(self, session: str, attempt: int, command: Sequence[str], environment: Mapping[str, str]) -> ExecResult:
        """Return what `set_exec_handler` was given; see Runtime."""
        with self._operation("execute"):
            container = self._find(session, attempt)
            if container is None or container.state.phase is not ContainerPhase.RUNNING:
                raise ExecutionError("The session's container is not running.")
            program = self._engine.program
        return program(command, environment)

    def keep_warm(self, stopped: threading.Event) -> None:
        """Return at once: every start is quick here; see Runtime."""

    def exits(self, stopped: threading.Event) -> Iterator[ContainerState]:
        """Yield exits from the moment of this call, even before the first is asked for; see Runtime."""
        inbox: queue.SimpleQueue[ContainerState] = queue.SimpleQueue()
        with self._engine.lock:
            self._engine.listeners.append((self._owner, inbox))
        return self._exits(stopped, inbox)

    def end(self, session: str, attempt: int, exit_code: int = 0, out_of_memory: bool = False) -> None:
        """Let the container's main process end by itself, or by the kernel for want of memory."""
        with self._engine.lock:
            self._end(self._find(session, attempt), KILLED if out_of_memory else exit_code, out_of_memory)

    def lose_container(self, session: str, attempt: int) -> None:
        """Make the container disappear without any event, as when the engine loses its data."""
        with self._engine.lock:
            self._engine.containers.pop(container_name(session, attempt), None)

    def write_log(self, session: str, attempt: int, line: str) -> None:
        """Let the container write a line."""
        with self._engine.lock:
            if container := self._find(session, attempt):
                container.log.append(line)

    def set_exec_handler(self, program: Program) -> None:
        """Have `execute` do this in every container of the engine."""
        with self._engine.lock:
            self._engine.program = program

    def spec(self, session: str, attempt: int) -> ContainerSpec | None:
        """Return what the container was created from, or None when it is not there."""
        with self._engine.lock:
            container = self._find(session, attempt)
            return container.spec if container else None

    def remove_image(self, reference: str, can_pull: bool = False) -> None:
        """Take the image off the host, and out of the registry too unless it can be pulled."""
        with self._engine.lock:
            self._engine.missing_images[reference] = can_pull

    def fail_next(
        self, operation: str, error: ContainerRuntimeError, times: int = 1, happens_after: bool = False
    ) -> None:
        """Let the next calls of the method `operation` by this owner raise `error`, on any instance of the engine.

        With `happens_after` the call takes effect first, as when the engine's answer gets lost. For `exits` each
        failure breaks one stream.
        """
        failures = [_Failure(error, happens_after) for _ in range(times)]
        with self._engine.lock:
            self._engine.failures.setdefault((self._owner, operation), []).extend(failures)

    def _exits(self, stopped: threading.Event, inbox: "queue.SimpleQueue[ContainerState]") -> Iterator[ContainerState]:
        try:
            while not stopped.is_set():
                with self._operation("exits"):
                    pass
                try:
                    state = inbox.get(timeout=STOPPED_CHECK_SECONDS)
                except queue.Empty:
                    continue
                yield state
        finally:
            with self._engine.lock:
                self._engine.listeners = [each for each in self._engine.listeners if each[1] is not inbox]

    @contextmanager
    def _operation(self, name: str) -> Iterator[None]:
        """Hold the engine's lock for the whole operation, and let it fail where that was asked for."""
        with self._engine.lock:
            failures = self._engine.failures.get((self._owner, name), [])
            failure = failures.pop(0) if failures else None
            if failure and not failure.happens_after:
                raise failure.error
            yield
            if failure:
                raise failure.error

    def _find(self, session: str, attempt: int) -> _Container | None:
        container = self._engine.containers.get(container_name(session, attempt))
        return container if container and container.owner == self._owner else None

    def _end(self, container: _Container | None, exit_code: int, out_of_memory: bool = False) -> None:
        """Move a running container to EXITED and tell the listeners; any other is left alone."""
        if container is None or container.state.phase is not ContainerPhase.RUNNING:
            return
        container.state = replace(
            container.state, phase=ContainerPhase.EXITED, exit_code=exit_code, out_of_memory=out_of_memory
        )
        for owner, inbox in self._engine.listeners:
            if owner == container.owner:
                inbox.put(container.state)
