"""A pool of threads that serves owners in turn, so that nobody's many calls hold up another's few."""

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

logger = logging.getLogger(__name__)


class FairPool:
    """Runs calls in `threads` threads, at most `threads_per_owner` of one owner at once, owners by round robin."""

    def __init__(self, threads: int, threads_per_owner: int, name: str) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._threads = threads
        self._threads_per_owner = threads_per_owner
        self._lock = threading.Lock()
        self._queues: dict[int, deque[Callable[[], None]]] = {}  # by owner, in the order of their turns
        self._running: Counter[int] = Counter()  # by owner

    def submit(self, owner: int, call: Callable[[], None]) -> None:
        """Have the call made once it is the owner's turn; no-op after `end`."""
        with self._lock:
            self._queues.setdefault(owner, deque()).append(call)
            self._dispatch()

    def end(self) -> None:
        """Drop the calls that wait, and wait for those that run."""
        with self._lock:
            self._queues.clear()
            self._threads = 0
        self._executor.shutdown()

    def _dispatch(self) -> None:
        """Start what may run; the caller holds the lock."""
        while self._running.total() < self._threads and (owner := self._next_owner()) is not None:
            queue = self._queues.pop(owner)
            call = queue.popleft()
            if queue:
                self._queues[owner] = queue  # as the last
            self._running[owner] += 1
            self._executor.submit(self._run, owner, call)

    def _next_owner(self) -> int | None:
        may_run = (owner for owner in self._queues if self._running[owner] < self._threads_per_owner)
        return next(may_run, None)

    def _run(self, owner: int, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:
            logger.exception("a call of owner %d failed", owner)
        finally:
            with self._lock:
                self._running -= Counter((owner,))  # without owners of none
                self._dispatch()
