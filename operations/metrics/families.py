"""How metrics of the platform are named and made."""

from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily

Sample = tuple[tuple[str, ...], float | None]


def gauge(name: str, text: str, labels: tuple[str, ...], samples: Iterable[Sample]) -> GaugeMetricFamily:
    """Return a metric; what the driver does not tell has no sample."""
    family = GaugeMetricFamily(f"gpuplatform_{name}", text, labels=labels)
    for values, value in samples:
        if value is not None:
            family.add_metric(values, value)
    return family
