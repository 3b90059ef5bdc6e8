"""What a deployment has served over an hour, a day or a week, with what its replicas held meanwhile.

Requests come from Redis, which may lose them; what was held, from the changes of status of its replicas.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple

from django.db import connection
from django.db.models import Avg

from deployments import figures
from deployments.figures import MINUTE, MinuteFigures
from deployments.models import Deployment
from resources import clock
from sessions.idle_rules import PERIOD
from sessions.lifecycle import HOSTED
from sessions.models import UsagePeriod

MILLI: Final = 1000  # milli-fGPU of an fGPU
HOUR_SECONDS: Final = 3600
PER_REQUESTS: Final = 1000  # of which the cost is told
_HELD: Final = """
    WITH spans AS (
        SELECT session.fgpu, event.new_status AS status, event.at AS since,
            coalesce(lead(event.at) OVER (PARTITION BY event.session_id ORDER BY event.id), %(now)s) AS until
        FROM deployments_replica replica
        JOIN compute_session session ON session.id = replica.session_id
        JOIN compute_sessionevent event
            ON event.session_id = session.id AND event.old_status <> event.new_status
        WHERE replica.deployment_id = %(deployment)s AND (session.ended_at IS NULL OR session.ended_at > %(begin)s)
    )
    SELECT extract(epoch FROM period)::bigint, sum(seconds), sum(seconds * fgpu)
    FROM spans, generate_series(%(begin)s, %(now)s, %(step)s) AS period, LATERAL (
        SELECT extract(epoch FROM least(until, period + %(step)s) - greatest(since, period))::double precision
            AS seconds
    ) AS part
    WHERE status = ANY(%(hosted)s) AND seconds > 0
    GROUP BY 1
"""


class FiguresSpan(StrEnum):
    """How far back figures go."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"


STEPS: Final = {  # seconds of a point, and number of points
    FiguresSpan.HOUR: (MINUTE, 60),
    FiguresSpan.DAY: (15 * MINUTE, 96),
    FiguresSpan.WEEK: (120 * MINUTE, 84),
}


class HeldShare(NamedTuple):
    """What replicas held in a period."""

    replica_seconds: float = 0.0
    fgpu_hours: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FiguresPoint:
    """A period of a deployment's life, which the running one is not over."""

    at: datetime
    seconds: float  # of it that are over
    served: MinuteFigures
    held: HeldShare
    gpu_percent: float | None  # of what the replicas hold; None where that is not known

    @property
    def requests_per_second(self) -> float:
        """How many ended, on average."""
        return self.served.requests / self.seconds

    @property
    def outstanding(self) -> float:
        """How many were under way, on average."""
        return self.served.outstanding_seconds / self.seconds

    @property
    def waiting(self) -> float:
        """How many waited, on average."""
        return self.served.waiting_seconds / self.seconds

    @property
    def replicas(self) -> float:
        """How many were on a host, on average."""
        return self.held.replica_seconds / self.seconds

    @property
    def fgpu_hours_per_1000_requests(self) -> float | None:
        """What so many requests cost; None without any."""
        return cost_of(self.held.fgpu_hours, self.served.requests)


def cost_of(fgpu_hours: float, requests: int) -> float | None:
    """Return fGPU hours for 1,000 requests; None without any."""
    return fgpu_hours * PER_REQUESTS / requests if requests else None


def points(deployment: Deployment, span: FiguresSpan) -> list[FiguresPoint]:
    """Return the points of the span, the running one last; two queries. Raises RedisError."""
    step, count = STEPS[span]
    served = figures.minutes(deployment.pk, count, step)
    now, begin = clock.now(), datetime.fromtimestamp(served[0].at, UTC)
    held = _held(deployment, begin, now, step)
    use = _gpu_use(deployment, begin, step)
    return [
        FiguresPoint(
            at=datetime.fromtimestamp(each.at, UTC),
            seconds=max(1.0, min(step, now.timestamp() - each.at)),
            served=each,
            held=held.get(each.at, HeldShare()),
            gpu_percent=use.get(each.at),
        )
        for each in served
    ]


def _held(deployment: Deployment, begin: datetime, now: datetime, step: int) -> dict[int, HeldShare]:
    hosted = sorted(status.value for status in HOSTED)
    values: Mapping[str, Any] = {
        **{"deployment": deployment.pk, "begin": begin, "now": now},
        **{"step": timedelta(seconds=step), "hosted": hosted},
    }
    with connection.cursor() as cursor:
        cursor.execute(_HELD, values)
        rows = cursor.fetchall()
    return {at: HeldShare(seconds, milli / MILLI / HOUR_SECONDS) for at, seconds, milli in rows}


def _gpu_use(deployment: Deployment, begin: datetime, step: int) -> dict[int, float]:
    """Return the mean of all replicas by the beginning of each period; one of minutes has that of its five minutes."""
    rows = UsagePeriod.objects.filter(session__replica__deployment=deployment, at__gte=begin - PERIOD)
    means = rows.exclude(gpu_percent=None).order_by().values_list("at").annotate(Avg("gpu_percent"))
    found: dict[int, list[float]] = {}
    for at, mean in means:
        start = int(at.timestamp())
        for each in range(start, start + int(PERIOD.total_seconds()), min(step, int(PERIOD.total_seconds()))):
            found.setdefault(each // step * step, []).append(mean)
    return {at: sum(known) / len(known) for at, known in found.items()}
