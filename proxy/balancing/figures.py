"""What a replica has served since the control plane was last told."""

from bisect import bisect_left
from collections import Counter

from proxy.authorization.control_plane import DURATION_BOUNDS, ServiceFigures, latency_bin
from proxy.budgets import NOTHING_USED, TokenUse


class FigureCounts:
    """Counts that `take` returns and begins anew."""

    __slots__ = ("durations", "errors", "latencies", "rejected", "requests", "seconds", "sent_bytes", "used")

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self.requests = self.errors = self.rejected = self.sent_bytes = 0
        self.seconds = 0.0
        self.durations = [0] * (len(DURATION_BOUNDS) + 1)
        self.latencies: Counter[int] = Counter()
        self.used = NOTHING_USED

    @property
    def is_empty(self) -> bool:
        """Whether nothing was counted since they were taken."""
        return not (self.requests or self.rejected)

    def count(self, seconds: float, sent_bytes: int, used: TokenUse, *, is_error: bool) -> None:
        """Count a request that has ended."""
        self.requests += 1
        self.errors += is_error
        self.sent_bytes += sent_bytes
        self.seconds += seconds
        self.durations[bisect_left(DURATION_BOUNDS, seconds)] += 1
        self.latencies[latency_bin(seconds)] += 1
        if used is not NOTHING_USED:
            self.used = self.used.plus(used)

    def reject(self) -> None:
        """Count a request that was answered here with 429 or 503."""
        self.rejected += 1

    def take(self, deployment: str, session: str, outstanding: int, revision: int = 0) -> ServiceFigures:
        """Return what was counted, and begin anew."""
        figures = ServiceFigures(
            deployment=deployment,
            session=session,
            revision=revision,
            outstanding=outstanding,
            requests=self.requests,
            errors=self.errors,
            rejected=self.rejected,
            durations=self.durations,
            latencies=self.latencies,
            seconds=self.seconds,
            sent_bytes=self.sent_bytes,
            prompt_tokens=self.used.prompt_tokens,
            completion_tokens=self.used.completion_tokens,
        )
        self._reset()
        return figures
