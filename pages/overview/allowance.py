"""How much a user or project holds of each amount that the policy limits."""

from dataclasses import asdict

from pages.gauges import LABELS, Gauge
from sessions.limits.held import Holder, limit_use_of


def allowances_of(holder: Holder) -> list[Gauge]:
    """Return the amounts that the policy of a user or project limits; two queries and the policy."""
    use = limit_use_of(holder)
    held = {**asdict(use.used), "pending": use.pending}
    return [Gauge(name=name, used=held[name], most=getattr(use.limits, name)) for name in LABELS]
