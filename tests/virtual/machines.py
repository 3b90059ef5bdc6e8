"""The processes of a virtual platform: schedulers, and hosts with an engine in memory and a worker without threads."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from django.db import connection

from hostworker.agent.worker import HostWorker
from hostworker.runtime.memory.runtime import MemoryRuntime
from hostworker.runtime_protocol import ContainerPhase, EngineUnreachableError
from resources.models import Host
from scheduler.cycle.forecasts import Forecasters
from scheduler.state.cache import GroupCaches
from tests.virtual.clock import NO_TIME
from tests.virtual.faults import Steps


@dataclass
class Process:
    """A process whose clock may be wrong."""

    name: str
    skew: timedelta = NO_TIME


@dataclass
class SchedulerProcess(Process):
    """One that makes passes: what it remembers between them."""

    caches: GroupCaches = field(default_factory=GroupCaches)
    forecasters: Forecasters = field(default_factory=Forecasters)

    def restart(self) -> None:
        """Forget all."""
        self.caches, self.forecasters = GroupCaches(), Forecasters()


class VirtualRuntime(MemoryRuntime):
    """An engine of its own, each request to which is a step."""

    def __init__(self, steps: Steps, name: str) -> None:
        """Begin without containers."""
        self._steps = steps
        self.is_down = False
        self.killed: list[tuple[str, int]] = []  # running containers that the platform stopped or removed
        super().__init__("installation", name, f"virtual://{uuid4()}")

    @contextmanager
    def operation(self, name: str) -> Iterator[None]:
        """Make the request unless the engine is down."""
        assert not connection.in_atomic_block, f"{name} is asked of the engine inside of a transaction"
        if self.is_down:
            raise EngineUnreachableError("down")
        with self._steps.engine(), super().operation(name):
            yield

    def stop(self, session: str, attempt: int, grace_seconds: int) -> None:
        """Note it where the container runs, and stop it."""
        self._note_kill(session, attempt)
        super().stop(session, attempt, grace_seconds)

    def remove(self, session: str, attempt: int) -> None:
        """Note it where the container runs, and remove it."""
        self._note_kill(session, attempt)
        super().remove(session, attempt)

    def states(self) -> dict[tuple[str, int], ContainerPhase]:
        """Return the phases of the containers by session and attempt, whether the engine is down or not."""
        return {(each.spec.session, each.spec.attempt): each.state.phase for each in self.engine.containers.values()}

    def saved_keys(self) -> set[tuple[str, int]]:
        """Return of which attempts the engine has saved the files."""
        return set(self.saved())

    def _note_kill(self, session: str, attempt: int) -> None:
        if self.states().get((session, attempt)) is ContainerPhase.RUNNING:
            self.killed.append((session, attempt))


class VirtualWorker(HostWorker):
    """A host worker without threads: what it would do in them becomes messages of its host."""

    def __init__(self, host: "VirtualHost") -> None:
        """Begin for this host."""
        self._of = host
        super().__init__(host.runtime, host.row)

    def _act(self, *action: Any) -> None:
        if not any(action == waiting for waiting in self._of.queue):
            self._of.queue.append(action)


@dataclass
class VirtualHost(Process):
    """A host: its engine, its worker, and the messages that wait for that."""

    row: Host = field(kw_only=True)
    runtime: VirtualRuntime = field(kw_only=True)
    queue: list[tuple[Any, ...]] = field(default_factory=list)  # (function, runtime, arguments)
    pulls: list[Callable[[], None]] = field(default_factory=list)
    programs: dict[str, str] = field(default_factory=dict)  # by import: what its program has printed in a session
    is_cut_off: bool = False
    is_worker_dead: bool = False
    is_gone: bool = False  # for ever
    silent_since: datetime | None = None  # from when no heartbeat can come
    longest_silence: timedelta = NO_TIME

    def __post_init__(self) -> None:
        """Begin with a worker."""
        self.worker = VirtualWorker(self)

    @property
    def is_here(self) -> bool:
        """Whether its worker runs and reaches the database."""
        return not (self.is_cut_off or self.is_worker_dead)
