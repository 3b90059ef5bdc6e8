"""Faults at the n-th step of what a process does: a statement, a commit, or a request to its engine."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from django.db import OperationalError, connection

from hostworker.runtime_protocol import EngineUnreachableError, ImageUnavailableError, StartError


class FaultKind(StrEnum):
    """What happens at the step."""

    KILLED = "process killed"
    KILLED_AFTER = "process killed after the step"
    DATABASE_ERROR = "database away"
    ANSWER_LOST = "answer of the database lost"
    CUT_OFF = "cut off from the database"
    ENGINE_ERROR = "engine away"
    ENGINE_ANSWER_LOST = "answer of the engine lost"
    START_REFUSED = "engine refuses"
    IMAGE_GONE = "image gone"
    MEANWHILE = "another acts meanwhile"


OF_ENGINE: Final = {
    FaultKind.ENGINE_ERROR: EngineUnreachableError("away"),
    FaultKind.ENGINE_ANSWER_LOST: EngineUnreachableError("away"),
    FaultKind.START_REFUSED: StartError("The engine refuses it."),
    FaultKind.IMAGE_GONE: ImageUnavailableError("The image is gone."),
    FaultKind.MEANWHILE: None,
}
AFTER: Final = (FaultKind.KILLED_AFTER, FaultKind.ANSWER_LOST, FaultKind.ENGINE_ANSWER_LOST)
DEADLY: Final = (FaultKind.KILLED, FaultKind.KILLED_AFTER)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at the step `at` of an act, the first of which is 0; of engine faults, at that step of the engine."""

    kind: FaultKind
    at: int


class KilledError(BaseException):
    """Stands for SIGKILL: nothing of the product may catch it."""


class LostDatabaseError(OperationalError):
    """Stands for a broken connection to the database."""


class Steps:
    """Counts the steps of the act under way, and has its fault happen."""

    def __init__(self) -> None:
        """Begin without an act."""
        self._fault: Fault | None = None
        self._count = 0
        self._is_dead = self._is_cut_off = False
        self.has_happened = False
        self.meanwhile: Callable[[], None] | None = None

    @contextmanager
    def of_act(self, fault: Fault | None) -> Iterator[None]:
        """Have the fault happen within the block; then the connection is as if it were new."""
        before = self._fault, self._count, self._is_dead, self._is_cut_off, self.has_happened
        self._fault, self._count, self._is_dead, self._is_cut_off, self.has_happened = fault, 0, False, False, False
        try:
            yield
        finally:
            is_broken = self._is_dead or self._is_cut_off
            self._fault, self._count, self._is_dead, self._is_cut_off, _ = before
            connection.run_on_commit = []
            if is_broken:
                with connection.cursor() as cursor:
                    cursor.execute("SELECT pg_advisory_unlock_all()")

    def statement(self, execute: Callable[..., Any], sql: Any, *arguments: Any) -> Any:
        """Execute a statement, as a wrapper of Django's."""
        if str(sql).startswith(("ROLLBACK", "RELEASE", "SELECT pg_advisory_unlock")) and not self._is_cut_off:
            return execute(sql, *arguments)
        return self._step(lambda: execute(sql, *arguments))

    def commit(self, commit: Callable[[], None]) -> None:
        """Commit, in place of Django's method."""
        try:
            self._step(commit)
        except BaseException:
            connection.rollback()  # nothing where it was committed
            raise

    @contextmanager
    def engine(self) -> Iterator[None]:
        """Count a request to the engine, which is made within the block."""
        kind = self._due(of_engine=True)
        if kind is FaultKind.MEANWHILE and self.meanwhile is not None:
            self.meanwhile()
            kind = None
        self._fail(kind, is_after=False)
        yield
        self._fail(kind, is_after=True)

    def _step(self, do: Callable[[], Any]) -> Any:
        if self._is_dead:
            raise KilledError
        if self._is_cut_off:
            raise LostDatabaseError("cut off")
        kind = self._due(of_engine=False)
        self._fail(kind, is_after=False)
        result = do()
        self._fail(kind, is_after=True)
        return result

    def _due(self, *, of_engine: bool) -> FaultKind | None:
        """Count a step; return the kind of the fault that happens at it."""
        fault = self._fault
        if fault is None or (fault.kind not in DEADLY and (fault.kind in OF_ENGINE) != of_engine):
            return None
        self._count += 1
        if self._count != fault.at + 1:
            return None
        self.has_happened = True
        return fault.kind

    def _fail(self, kind: FaultKind | None, *, is_after: bool) -> None:
        if kind is None or (kind in AFTER) != is_after:
            return
        if kind in DEADLY:
            self._is_dead = True
            raise KilledError
        if error := OF_ENGINE.get(kind):
            raise type(error)(*error.args)
        self._is_cut_off = kind is FaultKind.CUT_OFF
        raise LostDatabaseError(kind.value)


@contextmanager
def steps_of_database(steps: Steps) -> Iterator[None]:
    """Count the statements and commits of this thread's connection until the block ends."""
    commit = connection._commit  # type: ignore[attr-defined]
    connection._commit = lambda: steps.commit(commit)  # type: ignore[attr-defined]
    try:
        with connection.execute_wrapper(steps.statement):
            yield
    finally:
        del connection._commit  # type: ignore[attr-defined]
