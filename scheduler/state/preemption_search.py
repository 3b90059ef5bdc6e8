"""The search for sessions that end for one that waits, with a bound on what clusters over several hosts take. Pure.

Their hosts are searched together, for up to seconds of a processor, and one user may have many of them wait.
"""

import time
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from scheduler.core.cluster.candidates import Candidates
from scheduler.core.cluster.group_state import GroupState
from scheduler.core.cluster.preemption import Preemption, find_preemption
from scheduler.core.types import SessionRequest

SEARCH_SECONDS: Final = 0.5  # of a processor in a pass, for such clusters together, and what the last of them takes


class PreemptionSearch:
    """Finds who ends for a request; in each pass for as many clusters over several hosts as there is time.

    The next pass goes on with those that were not looked at.
    """

    def __init__(self) -> None:
        """Begin with none looked at."""
        self._left = 0.0  # seconds
        self._in_vain: set[str] = set()  # ids of such clusters for which nobody would end

    def begin_pass(self) -> None:
        """Give a pass its time; if the one before had enough, all are looked at anew."""
        if self._left > 0:
            self._in_vain.clear()
        self._left = SEARCH_SECONDS

    def find(
        self, group: GroupState, request: SessionRequest, among: Iterable[Candidates], now: datetime
    ) -> Preemption | None:
        """Return by whose end the request starts, of the first candidates that do; None if by nobody's, or unknown."""
        if request.shape.spans_hosts and (self._left <= 0 or request.id in self._in_vain):
            return None
        begun = time.thread_time()
        decisions = (find_preemption(group, request, candidates, now) for candidates in among)
        found = next(filter(None, decisions), None)
        if request.shape.spans_hosts:
            self._left -= time.thread_time() - begun
            if found is None:
                self._in_vain.add(request.id)
        return found
