"""What is slow to start and serves many tests: held open from one module to the next while tests ask for it."""

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, ExitStack
from typing import Any, TypeVar

T = TypeVar("T")


class HeldFixtures:
    """Values by the names of the fixtures that return them, each with what closes it."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[ExitStack, Any]] = {}

    def get(self, name: str, open_: Callable[[], AbstractContextManager[T]]) -> T:
        """Return the value held under this name, which is opened first where it is not."""
        if name not in self._open:
            stack = ExitStack()
            self._open[name] = stack, stack.enter_context(open_())
        value: T = self._open[name][1]
        return value

    def close_all_but(self, wanted: Collection[str]) -> None:
        """Close what is held under other names, the latest first."""
        for name in [name for name in reversed(self._open) if name not in wanted]:
            stack, _ = self._open.pop(name)
            stack.close()
