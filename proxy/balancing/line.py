"""The requests for one service that wait for a replica."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from proxy.authorization.decisions import ServicePrincipal
from proxy.balancing.refusals import RETRY_SECONDS, Refusal
from proxy.balancing.replicas import BalancedReplica


class Turn(Protocol):
    """A request on its way to a replica."""

    principal: ServicePrincipal
    sticky_key: bytes
    tried: BalancedReplica | None  # where it has failed already
    waits_until: float  # loop time, 0 if it does not wait

    @property
    def is_navigation(self) -> bool:
        """Whether a browser is to show the response."""
        ...

    def begin(self, replica: BalancedReplica) -> None:
        """Send it to this replica, at which it is counted already."""
        ...

    def refuse(self, why: Refusal, retry_seconds: int = RETRY_SECONDS) -> None:
        """Answer it without a replica."""
        ...


class WaitingLine:
    """Turns in the order in which they begin, and the timer that looks whether one may."""

    def __init__(self, look: Callable[[], None]) -> None:
        """`look` is called at the times that `look_in` is asked for."""
        self._look = look
        self._loop = asyncio.get_running_loop()
        self.turns: deque[Turn] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._rests_until = 0.0  # loop time

    def __len__(self) -> int:
        return len(self.turns)

    def __iter__(self) -> Iterator[Turn]:
        return iter(list(self.turns))

    def join(self, turn: Turn, seconds: float, *, is_first: bool = False) -> None:
        """Have a turn wait for so many seconds at most."""
        turn.waits_until = self._loop.time() + seconds
        if is_first:
            self.turns.appendleft(turn)
        else:
            self.turns.append(turn)

    def leave(self, turn: Turn) -> None:
        """Have a turn wait no longer."""
        turn.waits_until = 0.0
        self.turns.remove(turn)

    def shorten(self, seconds: float) -> None:
        """Have nobody wait for longer than so many seconds from now."""
        latest = self._loop.time() + seconds
        for turn in self.turns:
            turn.waits_until = min(turn.waits_until, latest)

    def look_in(self, seconds: float) -> None:
        """Look in so many seconds, or after a rest; 0 seconds go before a timer that is set."""
        if self._timer:
            if seconds:
                return
            self._timer.cancel()
        at = max(self._loop.time() + seconds, self._rests_until)
        self._timer = self._loop.call_at(at, self._look_now)

    def rest(self, seconds: float) -> None:
        """Look no sooner than in so many seconds, whatever happens: the last look has taken its time."""
        self._rests_until = self._loop.time() + seconds

    def _look_now(self) -> None:
        self._timer = None
        self._look()
