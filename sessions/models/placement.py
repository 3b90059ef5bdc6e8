"""What the scheduler writes: placements of sessions that wait, why the others go on waiting, and when they start."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol

from django.db import connection, models
from django.utils import timezone

from resources.models import ResourceGroup
from sessions import notify
from sessions.lifecycle import START_CERTAINTY
from sessions.models.session import Session


class StartForecast(models.Model):
    """The range of a start: what was told first, and last. Written by the scheduler; removed after thirty days.

    Of sessions that started at once there is none. One that has ended without a start has no `placed_at`.
    """

    session = models.OneToOneField(Session, on_delete=models.CASCADE, primary_key=True, related_name="start_estimate")
    group = models.ForeignKey(ResourceGroup, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField("told first at", default=timezone.now)
    first_likely = models.DateTimeField("likely start, as told first")
    first_from = models.DateTimeField("not before, as told first")
    first_until = models.DateTimeField("not after, as told first")
    first_by_limits = models.BooleanField("by limits alone, as told first", default=False, db_default=False)
    likely = models.DateTimeField("likely start")
    starts_from = models.DateTimeField("not before")
    starts_until = models.DateTimeField("not after")
    placed_at = models.DateTimeField("started at", null=True)

    class Meta:
        verbose_name = "start estimate"
        ordering = ("-created_at",)
        indexes = (
            models.Index(fields=("group", "-placed_at"), name="start_estimate_outcome"),
            models.Index(fields=("created_at",), name="start_estimate_age"),
        )

    def __str__(self) -> str:
        return f"{self.session_id}: {self.starts_from} to {self.starts_until}"

    @property
    def certainty(self) -> float:
        """Part of the starts that lie in their range."""
        return START_CERTAINTY[0] / START_CERTAINTY[1]


class Placed(Protocol):
    """A decision of the scheduler: the session, its host, and shares as (gpu id, milli-fGPU)."""

    @property
    def session_id(self) -> str: ...
    @property
    def host_id(self) -> int: ...
    @property
    def shares(self) -> tuple[tuple[int, int], ...]: ...


class Scheduled(NamedTuple):
    """What the scheduler's write returns of each session."""

    id: str
    owner_id: int
    project_id: int | None
    attempt: int
    host_name: str
    is_in_several: bool  # groups, whose passes must know that it waits no longer
    cluster_id: str | None


class WaitStatus(NamedTuple):
    """Why a session waits, in words for its owner; the latest time at which it starts, and why not earlier."""

    session_id: str
    reason: str
    detail: str  # at most 300 characters, as `eta_reason`
    eta: datetime | None = None
    eta_reason: str = ""


# Rows are locked in the order of ids, so that schedulers which place and explain the same sessions never wait for each
# other in a circle.
_LOCK: Final = """
    SELECT id FROM compute_session WHERE id = ANY(%(sessions)s::varchar[]) AND status = 'PENDING'
    ORDER BY id FOR NO KEY UPDATE
"""
_SCHEDULE: Final = """
    WITH clusters AS (  -- locked before their members, as whoever settles them does
        SELECT id, size, started_at FROM compute_cluster
        WHERE id IN (SELECT cluster_id FROM compute_session WHERE id = ANY(%(sessions)s::varchar[]))
        ORDER BY id FOR NO KEY UPDATE
    ), locked AS (
        SELECT id, cluster_id, is_elastic FROM compute_session
        WHERE (SELECT count(*) FROM clusters) >= 0 AND id = ANY(%(sessions)s::varchar[]) AND status = 'PENDING'
        ORDER BY id FOR NO KEY UPDATE
    ), whole AS (  -- of a cluster all members with which it starts, or none; elastic ones while those run
        SELECT locked.id FROM locked LEFT JOIN clusters ON clusters.id = locked.cluster_id
        WHERE locked.cluster_id IS NULL OR CASE WHEN locked.is_elastic THEN clusters.started_at IS NOT NULL
            ELSE clusters.size = (
                SELECT count(*) FROM locked AS members
                WHERE members.cluster_id = locked.cluster_id AND NOT members.is_elastic
            ) END
    ), weights AS (  -- of the models of the GPUs that each gets, the mean
        SELECT share.session_id,
            div(sum(share.milli * coalesce(1000 * weight.weight, 1000)), sum(share.milli))::integer AS milli
        FROM unnest(%(holders)s::varchar[], %(gpus)s::bigint[], %(millis)s::integer[])
            AS share (session_id, gpu_id, milli)
        JOIN resources_gpu gpu ON gpu.id = share.gpu_id
        LEFT JOIN resources_gpuweight weight ON weight.model = gpu.name
        GROUP BY 1
    ), moved AS (
        UPDATE compute_session session
        SET status = 'SCHEDULED', reason = 'ASSIGNED', detail = 'Placed on ' || host.name || '.',
            status_at = %(now)s, start_by = %(now)s + pool.start_allowance, eta = NULL, eta_reason = '', claim = NULL,
            attempt = session.attempt + 1, host_id = host.id, resource_group_id = pool.id, group_waits = '{}',
            core_milli = div(1000, pool.cpu_overcommit), gpu_weight_milli = coalesce(weights.milli, 1000),
            fgpu = CASE WHEN session.gpu_memory > 0 THEN placed.fgpu ELSE session.fgpu END,
            charge_percent = CASE WHEN session.is_preemptible AND session.resource_group_id <> pool.id
                THEN pool.preemptible_charge_percent ELSE session.charge_percent END
        FROM unnest(%(sessions)s::varchar[], %(hosts)s::bigint[], %(fgpus)s::integer[])
            AS placed (session_id, host_id, fgpu)
        JOIN whole ON whole.id = placed.session_id
        LEFT JOIN weights ON weights.session_id = placed.session_id
        JOIN resources_host host ON host.id = placed.host_id
        JOIN resources_resourcegroup pool ON pool.id = host.group_id
        WHERE session.id = placed.session_id AND session.status = 'PENDING'
            AND (session.resource_group_id = pool.id OR pool.id = ANY(session.group_choices))
        RETURNING session.id, session.owner_id, session.project_id, session.attempt, session.cpu, session.core_milli,
                  session.memory, session.detail, host.id AS host_id, host.name AS host_name,
                  session.group_choices <> '{}' AS is_in_several, session.cluster_id
    ), leased AS (
        INSERT INTO compute_lease (session_id, host_id, cpu, core_milli, memory)
        SELECT id, host_id, cpu, core_milli, memory FROM moved
    ), shared AS (
        INSERT INTO compute_gpushare (lease_id, gpu_id, milli)
        SELECT share.session_id, share.gpu_id, share.milli
        FROM unnest(%(holders)s::varchar[], %(gpus)s::bigint[], %(millis)s::integer[])
            AS share (session_id, gpu_id, milli)
        JOIN moved ON moved.id = share.session_id
    ), recorded AS (
        INSERT INTO compute_sessionevent (session_id, at, old_status, new_status, reason, detail)
        SELECT id, %(now)s, 'PENDING', 'SCHEDULED', 'ASSIGNED', detail FROM moved
    )
    SELECT id, owner_id, project_id, attempt, host_name, is_in_several, cluster_id FROM moved
"""

_EXPLAIN: Final = """
    WITH locked AS (
        SELECT id FROM compute_session WHERE id = ANY(%(sessions)s::varchar[]) AND status = 'PENDING'
        ORDER BY id FOR NO KEY UPDATE
    )
    UPDATE compute_session session
    SET reason = texts.reason, detail = texts.detail, eta = texts.eta, eta_reason = texts.eta_reason
    FROM unnest(%(sessions)s::varchar[], %(numbers)s::integer[]) AS numbered (session_id, number)
    JOIN unnest(%(reasons)s::varchar[], %(details)s::varchar[], %(etas)s::timestamptz[], %(eta_reasons)s::varchar[])
        WITH ORDINALITY AS texts (reason, detail, eta, eta_reason, number) USING (number)
    JOIN locked ON locked.id = numbered.session_id
    WHERE session.id = numbered.session_id AND session.status = 'PENDING'
"""


def _array(values: Iterable[str | int]) -> str:
    """Return an array of ids or numbers as PostgreSQL writes it, which takes the driver ten times as long."""
    return "{" + ",".join(map(str, values)) + "}"


def schedule(placements: Sequence[Placed], now: datetime) -> list[Scheduled]:
    """Move the sessions that are still PENDING to SCHEDULED with their leases at `now`; the set-based `move_to`.

    One statement for sessions, leases, shares and events: all or nothing.
    """
    shares = [(placed.session_id, *share) for placed in placements for share in placed.shares]
    parameters: dict[str, Any] = {
        "now": now,
        "sessions": _array(placed.session_id for placed in placements),
        "hosts": _array(placed.host_id for placed in placements),
        "fgpus": _array(sum(milli for _, milli in placed.shares) for placed in placements),
        "holders": _array(holder for holder, _, _ in shares),
        "gpus": _array(gpu_id for _, gpu_id, _ in shares),
        "millis": _array(milli for _, _, milli in shares),
    }
    with connection.cursor() as cursor:
        cursor.execute(_SCHEDULE, parameters)
        scheduled = [Scheduled(*row) for row in cursor.fetchall()]
    notify.sessions_changed([(row.id, row.owner_id, row.project_id) for row in scheduled])
    return scheduled


def lock_pending(session_ids: Iterable[str]) -> None:
    """Lock the rows of those sessions that are still PENDING, in the order in which all schedulers lock them."""
    with connection.cursor() as cursor:
        cursor.execute(_LOCK, {"sessions": _array(session_ids)})


def write_wait_statuses(statuses: Sequence[WaitStatus]) -> None:
    """Write the wait statuses of those sessions that are still PENDING, in one statement.

    Many sessions share a text: each distinct one is sent to the database once.
    """
    numbers: dict[tuple[Any, ...], int] = {}
    parameters: dict[str, Any] = {
        "sessions": _array(one.session_id for one in statuses),
        "numbers": _array([numbers.setdefault(one[1:], len(numbers) + 1) for one in statuses]),
    }
    columns = zip(*numbers, strict=True)
    parameters |= zip(("reasons", "details", "etas", "eta_reasons"), map(list, columns), strict=True)
    with connection.cursor() as cursor:
        cursor.execute(_EXPLAIN, parameters)
