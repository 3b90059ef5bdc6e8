"""What sessions held and how long they waited, by steps of time, from their changes of status and size."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import Q

from sessions.lifecycle import HOSTED
from sessions.models import SessionQuerySet

# The columns after those that rows are summed by, and the moment.
HELD_COLUMNS: Final = (
    "fgpu_milli_seconds",
    "weighted_fgpu_milli_seconds",
    "cpu_seconds",
    "memory_byte_seconds",
    "waiting_seconds",
)
# Spans are between changes of status. Waiting for a start time or for other sessions is not waiting in the queue.
# Numbers are double precision: numeric is several times as slow.
_HELD: Final = """
    WITH chosen (id, {keys}, cpu, memory, fgpu, weight, not_before, ended_at) AS ({chosen}), spans AS (
        SELECT chosen.*, event.new_status AS status,
            CASE WHEN event.new_status = 'PENDING' THEN greatest(event.at, chosen.not_before, others.over)
                ELSE event.at END AS since,
            least(ended_at, coalesce(event.next_at, %s)) AS until
        FROM chosen
        JOIN (
            SELECT session_id, new_status, at, lead(at) OVER (PARTITION BY session_id ORDER BY id) AS next_at
            FROM compute_sessionevent WHERE old_status <> new_status AND session_id IN (SELECT id FROM chosen)
        ) event ON event.session_id = chosen.id
        LEFT JOIN LATERAL (
            SELECT max(coalesce(CASE link.kind WHEN 'after' THEN coalesce((
                SELECT min(run.at) FROM compute_sessionevent run
                WHERE run.session_id = other.id AND run.new_status = 'RUNNING'
            ), other.started_at) ELSE other.ended_at END, 'infinity')) AS over
            FROM compute_session_depends_on link JOIN compute_session other ON other.id = link.to_session_id
            WHERE link.from_session_id = chosen.id
        ) others ON true
    ), sizes (id, cpu, memory, fgpu, weight, since, until) AS (
        SELECT chosen.id, past.cpu, past.memory, past.fgpu, past.gpu_weight_milli,
            coalesce(lag(past.until) OVER (PARTITION BY chosen.id ORDER BY past.until), '-infinity'), past.until
        FROM chosen JOIN compute_pastsize past ON past.session_id = chosen.id
        UNION ALL
        SELECT chosen.id, cpu, memory, fgpu, weight, last.until, 'infinity'
        FROM chosen
        JOIN (SELECT session_id, max(until) AS until FROM compute_pastsize GROUP BY 1) last ON last.session_id = id
    ), counted AS (
        SELECT * FROM spans WHERE status = 'PENDING' OR status = ANY(%s)
    ), pieces ({keys}, status, cpu, memory, fgpu, weight, since, until) AS (
        SELECT {keys}, status, cpu, memory, fgpu, weight, since, until
        FROM counted WHERE NOT EXISTS (SELECT FROM compute_pastsize WHERE session_id = counted.id)
        UNION ALL
        SELECT {keys}, status, sizes.cpu, sizes.memory, sizes.fgpu, sizes.weight,
            greatest(counted.since, sizes.since), least(counted.until, sizes.until)
        FROM counted JOIN sizes ON sizes.id = counted.id
    ), parts AS (
        SELECT pieces.*, begun,
            date_part('epoch', least(until, begun + step) - greatest(since, begun)) AS seconds
        FROM pieces, (SELECT %s AS step, %s AS first) asked, generate_series(
            greatest(date_bin(step, since, first), first), least(until, %s) - interval '1 microsecond', step
        ) AS begun
        WHERE until > since
    )
    SELECT {keys}, begun,
        coalesce(sum(seconds * fgpu) FILTER (WHERE status <> 'PENDING'), 0),
        coalesce(sum(seconds * (fgpu * (weight / 1000.0::double precision))) FILTER (WHERE status <> 'PENDING'), 0),
        coalesce(sum(seconds * cpu) FILTER (WHERE status <> 'PENDING'), 0),
        coalesce(sum(seconds * memory) FILTER (WHERE status <> 'PENDING'), 0),
        coalesce(sum(seconds) FILTER (WHERE status = 'PENDING'), 0)
    FROM parts GROUP BY {keys}, begun
"""


def lived_within(sessions: SessionQuerySet, begin: datetime, end: datetime) -> SessionQuerySet:
    """Return those of the sessions that were there in that time."""
    return sessions.filter(Q(ended_at=None) | Q(ended_at__gt=begin), created_at__lt=end).order_by()


def held_query(
    sessions: SessionQuerySet,
    keys: Sequence[str],
    begin: datetime,
    end: datetime,
    now: datetime,
    step: timedelta = timedelta(days=1),
) -> tuple[str, list[Any]]:
    """Return SQL and its parameters for rows of the session's fields `keys`, a moment and HELD_COLUMNS.

    Moments are `step` apart from `begin` to `end`, and each stands for the time to the next. What has not ended counts
    until `now`.
    """
    sessions = lived_within(sessions, begin, end)
    columns = ("pk", *keys, "cpu", "memory", "fgpu", "gpu_weight_milli", "not_before", "ended_at")
    chosen, parameters = sessions.values_list(*columns).query.sql_with_params()
    names = ", ".join(f"key{number}" for number in range(len(keys)))
    hosted = sorted(status.value for status in HOSTED)
    return _HELD.replace("{chosen}", chosen).replace("{keys}", names), [*parameters, now, hosted, step, begin, end]
