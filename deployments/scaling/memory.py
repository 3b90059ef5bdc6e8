"""What the autoscaler remembers of a deployment between two looks at it. Pure; stored as JSON while it is used.

All of it may be lost at any time: what is not remembered is unknown, and nothing is scaled down for the unknown.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Self

STABLE_SECONDS: Final = 60.0
PANIC_SECONDS: Final = 6.0
MAX_GAP_SECONDS: Final = 30.0  # between two looks; what happened in a longer gap is unknown
NEED_BUCKETS: Final = 30  # that the window before scaling down is divided into
MAX_SAMPLES: Final = 120
_TIMES: Final = ("seen_at", "since", "busy_at", "panic_until", "changed_at")


@dataclass(frozen=True, slots=True)
class Sample:
    """The load at one look: what all replicas have together, by the key of what was measured."""

    at: float
    totals: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Need:
    """How many replicas were needed at most, from `at` for the length of a bucket."""

    at: float
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Loads of the last minute and needs of the last minutes; times are Unix seconds."""

    samples: tuple[Sample, ...] = ()
    needs: tuple[Need, ...] = ()
    seen_at: float = 0.0  # the last look
    since: float = 0.0  # from when on the needs are known without a gap
    busy_at: float = 0.0  # when it was last in use, or may have been
    panic_until: float = 0.0
    changed_at: float = 0.0  # when the number that is wanted changed last
    wanted: int = -1  # at the end of the last look
    served: int = -1  # requests until then, as the processes count them; -1: unknown
    note: str = ""  # the sentence of the last decision

    def at(self, now: float, current: int) -> Self:
        """Return what is still true at a look: without what came from the future, or before a gap or a change."""
        if not 0 <= now - self.seen_at <= MAX_GAP_SECONDS:
            return type(self)(since=now, busy_at=now, seen_at=now, changed_at=min(self.changed_at, now), wanted=current)
        if current != self.wanted:  # somebody else has scaled it
            return replace(self, needs=(), since=now, busy_at=now, changed_at=now, seen_at=now, wanted=current)
        return replace(self, seen_at=now)

    def with_sample(self, now: float, totals: Mapping[str, float]) -> Self:
        """Return it with the load of now, without what is older than the stable window."""
        samples = [each for each in self.samples if each.at > now - STABLE_SECONDS]
        return replace(self, samples=(*samples, Sample(now, dict(totals)))[-MAX_SAMPLES:])

    def with_need(self, now: float, replicas: int, window: float) -> Self:
        """Return it with what is needed now, without what is older than the window."""
        width = window / NEED_BUCKETS
        needs = [each for each in self.needs if each.at + width > now - window]
        if needs and now < needs[-1].at + width:
            needs[-1] = Need(needs[-1].at, max(needs[-1].replicas, replicas))
        else:
            needs.append(Need(now, replicas))
        return replace(self, needs=tuple(needs[-NEED_BUCKETS - 2 :]))

    def mean(self, key: str, now: float, seconds: float) -> float:
        """Return the mean load of the last seconds; 0 without any."""
        found = [each.totals[key] for each in self.samples if each.at > now - seconds and key in each.totals]
        return sum(found) / len(found) if found else 0.0

    def most_needed(self, now: float, window: float) -> int | None:
        """Return how many were needed at most during the window; None while that is not known for all of it."""
        if not self.needs or now - self.since < window:
            return None
        return max(each.replicas for each in self.needs)

    def as_json(self) -> str:
        """Return it as text."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def of_json(cls, text: str | bytes | None) -> Self:
        """Return what was stored; nothing, where that is missing or cannot be read."""
        try:
            stored = json.loads(text or "{}")
            samples = [Sample(float(each["at"]), dict(each["totals"])) for each in stored["samples"]]
            needs = [Need(float(each["at"]), int(each["replicas"])) for each in stored["needs"]]
            wanted, served, note = int(stored["wanted"]), int(stored["served"]), str(stored["note"])
            memory = cls(samples=tuple(samples), needs=tuple(needs), wanted=wanted, served=served, note=note)
            times: dict[str, Any] = {name: float(stored[name]) for name in _TIMES}
            return replace(memory, **times)
        except (ValueError, TypeError, KeyError):  # of another version, say
            return cls()
