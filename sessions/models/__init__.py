"""The tables of sessions: sessions with their leases and events, and the endpoints by which their apps are reached.

Used by arrays, deployments, endpoints, gpuplatform, hostworker, imports, notifications, operations, pages, scheduler,
specs, sshserver and webhooks.
"""

from sessions.models import group_waits
from sessions.models.cluster import MAX_MEMBERS, Cluster, ClusterMode, in_whole, member_name, whole_status
from sessions.models.conversion import ACTIVE_CONVERSIONS, ChangeReport, Conversion, ConversionState, ReportState
from sessions.models.dependency import Dependency, has_happened, is_impossible, is_met, met_at
from sessions.models.endpoint import (
    TICKET_LIFE,
    AppObstacle,
    AppPort,
    Endpoint,
    EndpointEvent,
    EndpointQuerySet,
    EndpointState,
    HandOver,
    Revocation,
    ShareLink,
    ShareLinkQuerySet,
    Ticket,
    forbids_public_apps,
)
from sessions.models.ends import MIN_EXTENSION, STOP_DURATION, clock_expression, end_expression, time_bound
from sessions.models.event import RequestedEnd, SessionEvent
from sessions.models.idle import IdleNotice, IdleRule, UsageDay, UsagePeriod
from sessions.models.lease import GpuShare, Lease, cpu_held
from sessions.models.members import alike, first_refusal, locked_members, size_of
from sessions.models.mount import Mount
from sessions.models.placement import (
    Placed,
    Scheduled,
    StartForecast,
    WaitStatus,
    lock_pending,
    schedule,
    write_wait_statuses,
)
from sessions.models.session import (
    COUNTS_AS_PARKED,
    SESSION_ID,
    Session,
    SessionQuerySet,
    StaleSessionError,
    new_session_id,
    visible_to,
)
from sessions.models.usage import (
    FairUse,
    PastSize,
    SessionUsage,
    SummedDay,
    UsageCorrection,
    UsageHistory,
    UsageSum,
)
