"""What the database says of the platform, as metrics for Prometheus: sessions, deployments, capacity, hosts and GPUs.

Every scrape reads it anew, in the same few queries however much there is. Names follow
https://prometheus.io/docs/practices/naming/: base units, ratios from 0 to 1.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Final

from django.db.models import BigIntegerField, Case, Count, F, Min, Sum, When
from django.db.models.functions import Cast
from django.utils import timezone
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from deployments.models import Deployment, Replica
from operations.metrics.families import gauge
from operations.metrics.services import ServicesCollector
from resources.amounts.units import CORE_MILLI, PLAIN_WEIGHT
from resources.models import OVER, ElasticHost, ElasticPool, Gpu, GpuReading, Host, HostHealth
from sessions.estimates.starts import accuracy
from sessions.lifecycle import LIVE
from sessions.models import GpuShare, Lease, Session, cpu_held

MILLI: Final = 1000


class StateCollector(Collector):
    """Collects the state of the platform from its database."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metrics as they are now. Raises django.db.Error where the database does not respond."""
        now = timezone.now()
        yield from _sessions(now)
        yield from _start_estimates(now)
        yield from _deployments()
        yield from _capacity()
        yield from _hosts(now)
        yield from _elastic(now)
        yield from _gpus()


def state_registry() -> CollectorRegistry:
    """Return a registry of the platform's state alone."""
    registry = CollectorRegistry()
    registry.register(StateCollector())
    registry.register(ServicesCollector())
    return registry


def _sessions(now: datetime) -> Iterator[GaugeMetricFamily]:
    live = Session.objects.filter(status__in=LIVE).order_by()
    counted = live.values_list("resource_group__name", "status").annotate(Count("pk"))
    yield gauge("sessions", "Sessions that have not ended", ("group", "status"), (((g, s), n) for g, s, n in counted))
    pending = Session.objects.waiting().order_by()
    reasons = pending.values_list("resource_group__name", "reason").annotate(Count("pk"))
    yield gauge(
        "sessions_pending", "Waiting sessions by reason", ("group", "reason"), (((g, r), n) for g, r, n in reasons)
    )
    oldest = pending.values_list("resource_group__name").annotate(Min("status_at"))
    yield gauge(
        "sessions_pending_oldest_seconds",
        "For how long the one that waits longest has waited",
        ("group",),
        (((group,), (now - since).total_seconds()) for group, since in oldest),
    )


def _start_estimates(now: datetime) -> Iterator[GaugeMetricFamily]:
    """How right it was in the last seven days what sessions that wait were told first, and last."""
    labels, found = ("group", "estimate"), [((it.group, it.estimate), it) for it in accuracy(now)]
    yield gauge(
        "starts_estimated",
        "Starts of the last seven days that were told before",
        labels,
        ((key, it.starts) for key, it in found),
    )
    yield gauge(
        "starts_in_range_ratio",
        "Those of them in the range that was told",
        labels,
        ((key, it.in_range / it.starts) for key, it in found),
    )
    yield gauge(
        "start_error_seconds",
        "Median error of the likely start",
        labels,
        ((key, it.median_error.total_seconds()) for key, it in found),
    )


def _deployments() -> Iterator[GaugeMetricFamily]:
    live = Deployment.objects.live().order_by().values_list("resource_group__name")
    states = live.values_list("resource_group__name", "state").annotate(Count("pk"))
    yield gauge(
        "deployments", "Deployments that have not ended", ("group", "state"), (((g, s), n) for g, s, n in states)
    )
    wanted = dict(live.annotate(Sum("replicas")))
    ready = Replica.objects.taking_requests().order_by().values_list("deployment__resource_group__name")
    yield _of_groups("deployment_replicas_wanted", "Replicas that deployments are to have", wanted)
    yield _of_groups(
        "deployment_replicas_ready",
        "Replicas that take requests",
        dict.fromkeys(wanted, 0) | dict(ready.annotate(Count("pk"))),
    )


def _capacity() -> Iterator[GaugeMetricFamily]:
    hosts = list(Host.objects.values_list("group__name").annotate(Sum("cpu"), Sum("memory")).order_by())
    by_group = Lease.objects.values_list("host__group__name").order_by()
    leases = list(by_group.annotate(Sum("cpu"), Sum("memory"), guaranteed=cpu_held()))
    gpus = list(Gpu.objects.filter(is_present=True).values_list("host__group__name").annotate(Count("pk")).order_by())
    weight = Cast(F("milli"), BigIntegerField()) * F("lease__session__gpu_weight_milli")
    by_model = GpuShare.objects.values_list("gpu__host__group__name").order_by()
    shares = list(by_model.annotate(Sum("milli"), weighted=Sum(weight)))
    yield _of_groups("cpu_cores", "CPU cores of the hosts", {name: cpu for name, cpu, _ in hosts})
    yield _of_groups("memory_bytes", "Memory of the hosts", {name: size for name, _, size in hosts})
    yield _of_groups("gpus", "GPUs of the hosts", dict(gpus))
    none = dict.fromkeys((name for name, *_ in hosts), 0.0)  # or a group without sessions would have no sample
    guaranteed = {name: milli / CORE_MILLI for name, *_, milli in leases}
    usable = {name: cpu for name, cpu, *_ in leases}
    sizes = {name: size for name, _, size, _ in leases}
    yield _of_groups("cpu_cores_leased", "CPU cores that are guaranteed to sessions", none | guaranteed)
    yield _of_groups("cpu_cores_usable", "CPU cores that sessions may use, in sum, by their ceilings", none | usable)
    yield _of_groups("memory_leased_bytes", "Memory that sessions hold", none | sizes)
    held = {name: milli / MILLI for name, milli, _ in shares}
    weighted = {name: weighted / MILLI / PLAIN_WEIGHT for name, _, weighted in shares}
    yield _of_groups("gpus_leased", "GPUs that sessions hold, in parts", none | held)
    yield _of_groups("gpus_leased_weighted", "The same, each by the weight of its model", none | weighted)


def _hosts(now: datetime) -> Iterator[GaugeMetricFamily]:
    rows = list(Host.objects.values_list("name", "group__name", "status", "is_cordoned", "heartbeat_at"))
    labels = ("host", "group", "status", "cordoned")
    described = (((name, group, status, str(cordoned).lower()), 1) for name, group, status, cordoned, _ in rows)
    yield gauge("host_info", "One for each host; its labels say how it is", labels, described)
    silent = (((name,), (now - beat).total_seconds()) for name, _, _, _, beat in rows)
    yield gauge("host_heartbeat_age_seconds", "Time since the host's last sign of life", ("host",), silent)
    faulty = HostHealth.objects.filter(faulty_since__isnull=False).values_list("host__name")
    yield gauge("host_faulty", "Hosts out of service after starts that failed", ("host",), ((row, 1) for row in faulty))


def _elastic(now: datetime) -> Iterator[GaugeMetricFamily]:
    live = ElasticHost.objects.exclude(state__in=OVER).order_by().values_list("pool__group__name")
    states = live.values_list("pool__group__name", "state").annotate(Count("pk"))
    yield gauge(
        "elastic_hosts",
        "Hosts that were made and not given back",
        ("group", "state"),
        (((g, s), n) for g, s, n in states),
    )
    failures = Case(When(is_enabled=True, then="failures"), default=0)  # a disabled pool makes none, as it is to
    pools = list(ElasticPool.objects.order_by().values_list("group__name", "max_hosts", failures, "silent_since"))
    none = dict.fromkeys((name for name, *_ in pools), 0.0)
    cost = none | {name: float(value) for name, value in live.annotate(Sum("cost_per_hour"))}
    yield _of_groups("elastic_hosts_max", "Hosts at most", {name: most for name, most, *_ in pools})
    yield _of_groups("elastic_cost_per_hour", "Cost of an hour of the hosts, in the currency of the budget", cost)
    yield _of_groups(
        "elastic_failures_in_a_row", "Hosts in a row that did not come", {name: count for name, _, count, _ in pools}
    )
    silent = {name: (now - since).total_seconds() if since else 0.0 for name, *_, since in pools}
    yield _of_groups("elastic_provider_silent_seconds", "For how long the provider has not answered", silent)


def _gpus() -> Iterator[GaugeMetricFamily]:
    readings = list(GpuReading.objects.filter(gpu__is_present=True).select_related("gpu__host").order_by())

    def of_each(name: str, text: str, value: Callable[[GpuReading], float | None]) -> GaugeMetricFamily:
        samples = (((each.gpu.host.name, each.gpu.uuid), value(each)) for each in readings)
        return gauge(name, text, ("host", "gpu"), samples)

    yield of_each("gpu_utilization_ratio", "Part of the time in which it computed", _utilization)
    yield of_each("gpu_memory_used_bytes", "GPU memory in use", lambda reading: reading.memory_used)
    yield of_each("gpu_memory_bytes", "GPU memory", lambda reading: reading.gpu.memory)
    yield of_each("gpu_temperature_celsius", "Temperature", lambda reading: reading.temperature)
    yield of_each("gpu_power_watts", "Power that the GPU draws", lambda reading: reading.power)


def _utilization(reading: GpuReading) -> float | None:
    return None if reading.utilisation is None else reading.utilisation / 100


def _of_groups(name: str, text: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    return gauge(name, text, ("group",), (((group,), value) for group, value in values.items()))
