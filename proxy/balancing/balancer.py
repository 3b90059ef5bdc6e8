"""Spreads the requests for one service over its replicas, and lets them wait in line while all are busy."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from proxy.authorization.control_plane import ServiceFigures
from proxy.authorization.decisions import ServicePrincipal
from proxy.authorization.gateway_tokens import IssuedTokens
from proxy.balancing.choice import ReplicaChoice
from proxy.balancing.figures import FigureCounts
from proxy.balancing.line import Turn, WaitingLine
from proxy.balancing.metering import TokenMeter
from proxy.balancing.refusals import Refusal
from proxy.balancing.replicas import BalancedReplica
from proxy.budgets import TokenUse, UsageKey
from proxy.counters import ConnectionCounters
from proxy.http.headers import Header
from proxy.limits import ProxyLimits
from proxy.routes import ReplicaRoute, Route, RouteTable, Service
from proxy.upstream.pool import UpstreamPool

POLL_SECONDS: Final = 0.005  # between looks for a free replica while requests wait: other processes free them too
WAKE_POLL_SECONDS: Final = 0.5  # the same, while there is none at all: one that comes is told of at once
PASS_OVER_SECONDS: Final = 4e-5  # of rest for each request that a look passes over, which takes a fifth of that
WAKE_SECONDS: Final = 2.0  # between two times that the control plane is told of requests without a replica


class Balancer:
    """The replicas of a service, the line in front of them, and what they have served."""

    def __init__(
        self,
        service: Service,
        table: RouteTable,
        counters: ConnectionCounters,
        limits: ProxyLimits,
        meter: TokenMeter,
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
        self._meter = meter
        self._reaches = reaches
        self._pool = pool
        self._wake = wake
        self._woken_at = float("-inf")  # loop time at which the control plane was told last
        self._gateway_tokens = IssuedTokens()
        self._loop = asyncio.get_running_loop()
        self._version = -1  # of the table, at the last look
        self._replicas: dict[tuple[str, str, str, int, str], BalancedReplica] = {}  # by place, gone ones included
        self._places: set[tuple[str, str, str, int, str]] = set()  # of the service's replicas
        self._choice = ReplicaChoice()
        self._line = WaitingLine(self._serve_waiting)
        self._figures = FigureCounts()  # of what reached no replica

    # --- the turns

    def enter(self, turn: Turn) -> None:
        """Have the request begin now, let it wait, or refuse it."""
        if self._version != self._table.version:
            self._look()
        if refused := self._admit(turn.principal):
            turn.refuse(*refused)
        elif not self._choice.taking:
            self._enter_without_replica(turn)
        elif not self._line.turns and (replica := self._choice.take(turn)):
            turn.begin(replica)
        elif len(self._line) >= self.service.queue:
            turn.refuse(Refusal.BUSY)
        else:
            self._line.join(turn, self._limits.queue_seconds)
            self._line.look_in(POLL_SECONDS)

    def enter_again(self, turn: Turn, why: Refusal) -> None:
        """Have a request begin at another replica than that at which it failed, before those that wait.

        It is refused for this reason where there is no other.
        """
        self._look()
        if not any(each is not turn.tried for each in self._choice.taking):
            turn.refuse(why)
        elif replica := self._choice.take(turn):
            turn.begin(replica)
        else:
            self._line.join(turn, self._limits.queue_seconds, is_first=True)
            self._line.look_in(POLL_SECONDS)

    def leave(self, replica: BalancedReplica) -> None:
        """Count a request that has ended less; the first that waits may begin."""
        replica.outstanding.remove()
        if self._line.turns:
            self._line.look_in(0.0)

    def table_changed(self) -> None:
        """Have those that wait begin where a replica has come."""
        if self._line:
            self._line.look_in(0.0)

    def stop_waiting(self, turn: Turn) -> None:
        """Give up the place in the line."""
        self._line.leave(turn)

    def reject(self, turn: Turn, why: Refusal) -> None:
        """Count a request that was refused."""
        self._figures.reject()
        self._meter.give_back(self._usage_key(turn.principal), why)

    def count_use(self, principal: ServicePrincipal, used: TokenUse) -> None:
        """Count what a response has cost whoever has asked."""
        if used.tokens:
            self._meter.add(self._usage_key(principal), used)

    def _admit(self, principal: ServicePrincipal) -> tuple[Refusal, int] | None:
        if principal.token:
            return self._meter.admit(principal.token)
        self._meter.count(self.service.deployment)
        return None

    def _usage_key(self, principal: ServicePrincipal) -> UsageKey:
        return principal.token.pk if principal.token else self.service.deployment

    # --- the way to a replica

    def pool(self, replica: BalancedReplica) -> UpstreamPool:
        """Return the connections to a replica."""
        return self._pool(replica.route)

    def way_headers(self, replica: BalancedReplica) -> tuple[Header, ...]:
        """Return the headers for the gateway on the way to a replica."""
        route = replica.route
        return ((b"X-GP-Gateway", self._gateway_tokens.issue(route.label, route.gateway_key)),)

    def avoid(self, replica: BalancedReplica) -> None:
        """Choose others for a while: it could not be reached."""
        self._choice.avoid(replica)

    # --- what was served

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
        if self._line or not self._figures.is_empty:
            yield self._figures.take(self.service.deployment, "", len(self._line))

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way or waits, nor is left to be told."""
        return not self._replicas and not self._line and self._figures.is_empty

    # --- inside

    def _look(self) -> None:
        """Learn of changes of the service and of routes."""
        if self._version == self._table.version:
            return
        self._version = self._table.version
        service = self._table.get_service(self.service.label)
        if service is not None:
            self.service = service
        self._places = {each.route.place for each in service.replicas} if service else set()
        had_none = not self._choice.taking
        found = self._table.replicas_of(service) if service else []
        self._choice.update(self.service, [self._replica(each) for each in found if self._reaches(each.route)])
        if had_none and self._choice.taking:  # it has woken, and those that wait are in line like others
            self._line.shorten(self._limits.queue_seconds)

    def _replica(self, found: ReplicaRoute) -> BalancedReplica:
        route = found.route
        replica = self._replicas.get(route.place)
        if replica is None:
            counter = self._counters.counter(f"replica {self.service.label} {route.session}")
            replica = self._replicas[route.place] = BalancedReplica(route, counter)
        replica.route, replica.revision = route, found.revision
        return replica

    def _enter_without_replica(self, turn: Turn) -> None:
        """Have the request wait for a replica that wakes, or refuse it."""
        service = self.service
        if service.wakes:
            self._tell_waking()
        if not service.wakes or not service.wake_seconds or turn.is_navigation:  # pages wait by themselves
            turn.refuse(Refusal.NO_REPLICA)
        elif len(self._line) >= service.queue:
            turn.refuse(Refusal.BUSY)
        else:
            self._line.join(turn, service.wake_seconds)
            self._line.look_in(WAKE_POLL_SECONDS)

    def _tell_waking(self) -> None:
        """Tell the control plane that a request finds no replica, again and again, since that may be lost."""
        now = self._loop.time()
        if now - self._woken_at >= WAKE_SECONDS:
            self._woken_at = now
            self._wake(self.service.deployment)

    def _serve_waiting(self) -> None:
        """Have those that wait begin in their order, as far as replicas are free; refuse those that waited too long."""
        self._look()
        now, line, passed_over = self._loop.time(), self._line, 0
        try:
            for turn in line:
                if turn.waits_until <= now:
                    line.leave(turn)
                    turn.refuse(Refusal.WAITED if self._choice.taking else Refusal.NO_REPLICA)
                elif replica := self._choice.take(turn):
                    line.leave(turn)
                    turn.begin(replica)
                elif not self.service.sticky or self._choice.is_full:
                    break
                else:  # bound to a replica that has enough: the next one may be bound to another
                    passed_over += 1
        finally:
            line.rest(passed_over * PASS_OVER_SECONDS)
            if line and self._choice.taking:
                line.look_in(POLL_SECONDS)
            elif line:
                if self.service.wakes:
                    self._tell_waking()
                line.look_in(WAKE_POLL_SECONDS)
