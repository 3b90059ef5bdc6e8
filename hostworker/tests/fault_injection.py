"""A runtime in which something happens at an awkward moment, for what would else take luck to meet."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from hostworker.runtime.memory.runtime import MemoryRuntime


class FaultInjectingRuntime(MemoryRuntime):
    """An engine of its own; `just_before` arranges what another does right before an operation takes effect."""

    def __init__(self) -> None:
        """Begin with no containers and nothing arranged."""
        self._arranged: dict[str, Callable[[], object]] = {}
        super().__init__("installation", "here", f"memory://{uuid4()}")

    def just_before(self, operation: str, happening: Callable[[], object]) -> None:
        """Call `happening` once, before the next call of the method, or the operation of a part, of this name."""
        self._arranged[operation] = happening

    @contextmanager
    def operation(self, name: str) -> Iterator[None]:
        """Let what was arranged for this operation happen first."""
        self._happen(name)
        with super().operation(name):
            yield

    def __getattribute__(self, name: str) -> Any:
        """Let what was arranged for this method happen first."""
        if name != "_happen":
            self._happen(name)
        return super().__getattribute__(name)

    def _happen(self, name: str) -> None:
        if happening := object.__getattribute__(self, "__dict__").get("_arranged", {}).pop(name, None):
            happening()
