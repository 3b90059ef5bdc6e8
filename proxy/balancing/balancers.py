"""The balancers of all services that a process has served lately."""

from collections.abc import Callable

from proxy.authorization.control_plane import ServiceFigures
from proxy.balancing.balancer import Balancer
from proxy.balancing.metering import Report, TokenMeter
from proxy.counters import ConnectionCounters
from proxy.limits import ProxyLimits
from proxy.routes import Route, RouteTable, Service
from proxy.upstream.pool import UpstreamPool


class Balancers:
    """One balancer for each service, made when it is first asked for."""

    def __init__(
        self,
        table: RouteTable,
        counters: ConnectionCounters,
        limits: ProxyLimits,
        reaches: Callable[[Route], bool],
        pool: Callable[[Route], UpstreamPool],
        wake: Callable[[str], None],
    ) -> None:
        """`reaches` says whether a route leads where replicas may be, `pool` returns the connections to one.

        `wake` is told the deployments that requests wait for.
        """
        self._table = table
        self._counters = counters
        self._limits = limits
        self._reaches = reaches
        self._pool = pool
        self._wake = wake
        self._meter = TokenMeter(counters)
        self._balancers: dict[str, Balancer] = {}  # by label
        table.on_change(self._table_changed)

    def of(self, service: Service) -> Balancer:
        """Return the balancer of this service."""
        balancer = self._balancers.get(service.label)
        if balancer is None:
            balancer = self._balancers[service.label] = Balancer(
                service, self._table, self._counters, self._limits, self._meter, self._reaches, self._pool, self._wake
            )
        return balancer

    def figures(self) -> list[ServiceFigures]:
        """Return what was served since; forget services that are gone."""
        found = [figures for balancer in self._balancers.values() for figures in balancer.figures()]
        for label, balancer in list(self._balancers.items()):
            if balancer.is_idle and self._table.get_service(label) is None:
                del self._balancers[label]
        return found

    def _table_changed(self) -> None:
        for balancer in self._balancers.values():
            balancer.table_changed()

    def report(self, report: Report) -> None:
        """Tell what tokens have used since, and learn what is spent of their budgets."""
        self._meter.report(report)
