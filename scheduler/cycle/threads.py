"""Passes over resource groups, or pools, in threads: one of each at a time, and none waits for another's."""

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from django.db import close_old_connections, connections

logger = logging.getLogger(__name__)

MAX_CONCURRENT_CYCLES = 8


class GroupCycles:
    """Runs passes as they are requested; requests during a group's pass make one more after it."""

    def __init__(
        self, run: Callable[[int], object], threads: int = MAX_CONCURRENT_CYCLES, what: str = "pass over group"
    ) -> None:
        """`run` makes a pass over the group with this id; `what` it makes is for the log."""
        self._run, self._what = run, what
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=what.partition(" ")[0])
        self._lock = threading.Lock()
        self._wanted: set[int] = set()
        self._busy: set[int] = set()  # groups that have a thread, or wait for one

    def request(self, group_ids: Iterable[int]) -> None:
        """Have a pass made over each of these groups that reads what is committed by now; return at once."""
        with self._lock:
            for group_id in group_ids:
                self._wanted.add(group_id)
                if group_id not in self._busy:
                    self._busy.add(group_id)
                    self._executor.submit(self._serve, group_id)

    def end(self) -> None:
        """Wait for the passes that were requested."""
        self._executor.shutdown()

    def _serve(self, group_id: int) -> None:
        """Make passes over the group until none is wanted."""
        try:
            close_old_connections()
            while self._is_wanted(group_id):
                self._pass(group_id)
        finally:
            connections.close_all()

    def _pass(self, group_id: int) -> None:
        try:
            self._run(group_id)
        except Exception:
            logger.exception("the %s %d failed; the next one goes on", self._what, group_id)

    def _is_wanted(self, group_id: int) -> bool:
        with self._lock:
            if group_id in self._wanted:
                self._wanted.remove(group_id)
                return True
            self._busy.remove(group_id)
            return False
