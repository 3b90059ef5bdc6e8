"""Work that a request does not wait for: one thread per kind of work, and no exception lost."""

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, ParamSpec
from weakref import WeakSet

from django.db import close_old_connections

logger = logging.getLogger(__name__)
P = ParamSpec("P")


class BackgroundThread:
    """A thread that runs functions one after another and logs what they raise, since nobody waits for their results.

    Connections of the thread to the database that broke, or are too old, are closed before and after each.
    """

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._latest: Future[Any] | None = None
        _all_threads.add(self)

    def run(self, function: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> Future[Any]:
        """Queue `function` with these arguments; return its future, which need not be read.

        While the process ends nothing is done: the caller's transaction is over, and what follows it goes on.
        """
        try:
            future = self._pool.submit(_run, function, *args, **kwargs)
        except RuntimeError as error:
            logger.warning("background work is left undone, since the process ends: %s", error)
            future = Future()
            future.cancel()
            return future
        future.add_done_callback(_log_exception)
        return future

    def run_unless_busy(self, function: Callable[[], Any]) -> None:
        """Queue `function`, unless what was last queued by this is still under way, as it looks for more itself."""
        if self._latest is None or self._latest.done():
            self._latest = self.run(function)


def finish_all() -> None:
    """Return when all that is queued by now is done, for a program about to end: later, it can start no thread."""
    for future in [background.run(int) for background in _all_threads]:
        future.result()


_all_threads: Final[WeakSet[BackgroundThread]] = WeakSet()


def _run(function: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Any:
    close_old_connections()
    try:
        return function(*args, **kwargs)
    finally:
        close_old_connections()


def _log_exception(future: Future[Any]) -> None:
    if not future.cancelled() and (error := future.exception()):
        logger.error("background work failed", exc_info=error)
