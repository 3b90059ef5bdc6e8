"""Spreads the requests for one service over its replicas, and lets them wait in line while all are busy."""

import asyncio
import secrets
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from proxy.authorization.control_plane import ServiceFigures
from proxy.authorization.decisions import ServicePrincipal
from proxy.authorization.gateway_tokens import IssuedTokens
from proxy.authorization.services import STICKY_BY_COOKIE
from proxy.balancing.figures import FigureCounts
from proxy.balancing.rates import TokenRates
from proxy.balancing.refusals import RETRY_SECONDS, Refusal
from proxy.balancing.replicas import BalancedReplica, by_key, least_outstanding
from proxy.balancing.shares import RevisionShares
from proxy.counters import ConnectionCounters
from proxy.http.headers import Header
from proxy.limits import ProxyLimits
from proxy.routes import ReplicaRoute, Route, RouteTable, Service
from proxy.upstream.pool import UpstreamPool

AVOID_SECONDS: Final = 5.0  # for which a replica that could not be reached is chosen last
POLL_SECONDS: Final = 0.005  # between looks for a free replica while requests wait: other processes free them too
WAKE_POLL_SECONDS: Final = 0.02  # the same, while there is none at all
WAKE_SECONDS: Final = 2.0  # between two times that the control plane is told of requests without a replica


class Turn(Protocol):
    """A request on its way to a replica."""

    principal: ServicePrincipal
    sticky_key: bytes
    tried: BalancedReplica | None  # where it has failed already
    waits_until: float  # loop time

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


class Balancer:
    """The replicas of a service that take requests, and the requests that wait for one."""

    def __init__(
        self,
        service: Service,
        table: RouteTable,
        counters: ConnectionCounters,
        limits: ProxyLimits,
        rates: TokenRates,
        reaches: Callable[[Route], bool],
        pool: Callable[[Route], UpstreamPool],
        wake: Callable[[str], None],
    ) -> None:
        """`reaches` says whether a route leads where replicas may be, `pool` returns the connections to one.

        `wake` is told the deployment while requests find no replica.
        """
        self.service = service
        self._table = table
        self._counters = counters
        self._limits = limits
        self._rates = rates
        self._reaches = reaches
        self._pool = pool
        self._wake = wake
        self._woken_at = float("-inf")  # loop time at which the control plane was told last
        self._gateway_tokens = IssuedTokens()
        self._loop = asyncio.get_running_loop()
        self._version = -1  # of the table, at the last look
        self._replicas: dict[tuple[str, str, str, int, str], BalancedReplica] = {}  # by place, gone ones included
        self._places: set[tuple[str, str, str, int, str]] = set()  # of the service's replicas
        self._taking: list[BalancedReplica] = []
        self._shares = RevisionShares()
        # by revision: the replica to begin with, or all processes would begin with the same
        self._starts: defaultdict[int, int] = defaultdict(lambda: secrets.randbelow(1024))
        self._avoided_until = 0.0  # loop time until which any replica is avoided
        self._waiting: deque[Turn] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._figures = FigureCounts()  # of what reached no replica

    def enter(self, turn: Turn) -> None:
        """Have the request begin now, let it wait, or refuse it."""
        self._look()
        token = turn.principal.token
        if token and (seconds := self._rates.admit(token)):
            turn.refuse(Refusal.RATE, seconds)
        elif not self._taking:
            self._enter_without_replica(turn)
        elif not self._waiting and (replica := self._take(turn)):
            turn.begin(replica)
        elif len(self._waiting) >= self.service.queue:
            turn.refuse(Refusal.BUSY)
        else:
            turn.waits_until = self._loop.time() + self._limits.queue_seconds
            self._waiting.append(turn)
            self._poll(POLL_SECONDS)

    def _enter_without_replica(self, turn: Turn) -> None:
        """Have the request wait for a replica that wakes, or refuse it."""
        service = self.service
        if service.wakes:
            self._tell_waking()
        if not service.wakes or not service.wake_seconds or turn.is_navigation:  # pages wait by themselves
            turn.refuse(Refusal.NO_REPLICA)
        elif len(self._waiting) >= service.queue:
            turn.refuse(Refusal.BUSY)
        else:
            turn.waits_until = self._loop.time() + service.wake_seconds
            self._waiting.append(turn)
            self._poll(WAKE_POLL_SECONDS)

    def _tell_waking(self) -> None:
        """Tell the control plane that a request finds no replica, again and again, since that may be lost."""
        now = self._loop.time()
        if now - self._woken_at >= WAKE_SECONDS:
            self._woken_at = now
            self._wake(self.service.deployment)

    def enter_again(self, turn: Turn, why: Refusal) -> None:
        """Have a request begin at another replica than that at which it failed, before those that wait.

        It is refused for this reason where there is no other.
        """
        self._look()
        if not any(each is not turn.tried for each in self._taking):
            turn.refuse(why)
        elif replica := self._take(turn):
            turn.begin(replica)
        else:
            turn.waits_until = self._loop.time() + self._limits.queue_seconds
            self._waiting.appendleft(turn)
            self._poll(POLL_SECONDS)

    def pool(self, replica: BalancedReplica) -> UpstreamPool:
        """Return the connections to a replica."""
        return self._pool(replica.route)

    def way_headers(self, replica: BalancedReplica) -> tuple[Header, ...]:
        """Return the headers for the gateway on the way to a replica, if there is one."""
        route = replica.route
        if not route.gateway:
            return ()
        return ((b"X-GP-Gateway", self._gateway_tokens.issue(route.label, route.gateway_key)),)

    def leave(self, replica: BalancedReplica) -> None:
        """Count a request that has ended less; the first that waits may begin."""
        replica.outstanding.remove()
        if self._waiting:
            self._poll(0.0)

    def stop_waiting(self, turn: Turn) -> None:
        """Give up the place in the line."""
        self._waiting.remove(turn)

    def avoid(self, replica: BalancedReplica) -> None:
        """Choose others for a while: it could not be reached."""
        self._avoided_until = replica.avoided_until = self._loop.time() + AVOID_SECONDS

    def reject(self, turn: Turn) -> None:
        """Count a request that was refused."""
        self._figures.reject(turn.principal.token)

    def figures(self) -> Iterator[ServiceFigures]:
        """Yield what was served since, and what is under way; forget replicas that are gone."""
        self._look()
        for replica in list(self._replicas.values()):
            outstanding = replica.outstanding.own
            if outstanding or replica.was_outstanding or not replica.figures.is_empty:
                replica.was_outstanding = outstanding > 0
                yield replica.figures.take(
                    self.service.deployment, replica.route.session, outstanding, replica.revision
                )
            elif replica.route.place not in self._places:
                del self._replicas[replica.route.place]
        if self._waiting or not self._figures.is_empty:
            yield self._figures.take(self.service.deployment, "", len(self._waiting))

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way or waits, nor is left to be told."""
        return not self._replicas and not self._waiting and self._figures.is_empty

    # --- the choice

    def _look(self) -> None:
        """Learn of changes of the service and of routes."""
        if self._version == self._table.version:
            return
        self._version = self._table.version
        service = self._table.get_service(self.service.label)
        if service is not None:
            self.service = service
            self._shares.update(service.weights)
        routes = [each.route for each in service.replicas] if service else []
        self._places = {route.place for route in routes}
        had_none = not self._taking
        self._taking = [
            self._replica(each)
            for each in (self._table.replicas_of(service) if service else [])
            if self._reaches(each.route)
        ]
        if had_none and self._taking and self._waiting:  # it has woken, and they are in line like others
            latest = self._loop.time() + self._limits.queue_seconds
            for turn in self._waiting:
                turn.waits_until = min(turn.waits_until, latest)

    def _replica(self, found: ReplicaRoute) -> BalancedReplica:
        route = found.route
        replica = self._replicas.get(route.place)
        if replica is None:
            counter = self._counters.counter(f"replica {self.service.label} {route.session}")
            replica = self._replicas[route.place] = BalancedReplica(route, counter)
        replica.route, replica.revision = route, found.revision
        return replica

    def _take(self, turn: Turn) -> BalancedReplica | None:
        """Count the request at the replica chosen for it, and return that; None while it is to wait."""
        candidates = self._taking
        if turn.tried is not None:
            candidates = [each for each in candidates if each is not turn.tried]
        candidates = self._shares.sharing(candidates)
        if self._avoided_until and candidates:
            candidates = self._without_avoided(candidates)
        if self.service.sticky and (pinned := self._pinned(candidates, turn)):
            return pinned if self._count_at(pinned, pinned.outstanding.count()) else None
        if not candidates:
            return None
        for revision, replicas in self._shares.by_turn(candidates):
            index, least = least_outstanding(replicas, self._starts[revision])
            self._starts[revision] = index + 1
            if self._count_at(replicas[index], least):
                self._shares.begun(revision, candidates)
                return replicas[index]
        return None

    def _without_avoided(self, candidates: list[BalancedReplica]) -> list[BalancedReplica]:
        now = self._loop.time()
        if now >= self._avoided_until:
            self._avoided_until = 0.0
            return candidates
        return [each for each in candidates if each.avoided_until <= now] or candidates

    def _pinned(self, candidates: list[BalancedReplica], turn: Turn) -> BalancedReplica | None:
        """Return the replica that has to serve the request, None if any may."""
        if self.service.sticky == STICKY_BY_COOKIE:
            wanted = turn.principal.replica
            return next((each for each in candidates if each.id == wanted), None) if wanted else None
        if not turn.sticky_key or not candidates:
            return None
        return by_key(self._shares.of_key(candidates, turn.sticky_key), turn.sticky_key)

    def _count_at(self, replica: BalancedReplica, count: int) -> bool:
        """Count one more request at a replica that has `count`; False if that would be too many.

        It is counted before the others are looked at again, so that two processes never take the last place both.
        """
        limit = self.service.concurrency
        if not limit:
            replica.outstanding.add()
            return True
        if count >= limit:
            return False
        replica.outstanding.add()
        if replica.outstanding.count() <= limit:
            return True
        replica.outstanding.remove()
        return False

    # --- the line

    def _poll(self, seconds: float) -> None:
        """Look for free replicas in so many seconds; 0 seconds go before a timer that is set."""
        if self._timer:
            if seconds:
                return
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._serve_waiting)

    def _serve_waiting(self) -> None:
        """Have those that wait begin in their order, as far as replicas are free; refuse those that waited too long."""
        self._timer = None
        self._look()
        now = self._loop.time()
        try:
            for turn in list(self._waiting):
                if turn.waits_until <= now:
                    self._waiting.remove(turn)
                    turn.refuse(Refusal.WAITED if self._taking else Refusal.NO_REPLICA)
                elif replica := self._take(turn):
                    self._waiting.remove(turn)
                    turn.begin(replica)
                elif not self.service.sticky:
                    break
        finally:
            if self._waiting and self._taking:
                self._poll(POLL_SECONDS)
            elif self._waiting:
                if self.service.wakes:
                    self._tell_waking()
                self._poll(WAKE_POLL_SECONDS)
