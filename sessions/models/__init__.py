"""The tables of sessions: sessions with their leases and events, and the endpoints by which their apps are reached."""

from sessions.models.endpoint import (
    TICKET_LIFE,
    Endpoint,
    EndpointEvent,
    EndpointState,
    Revocation,
    ShareLink,
    Ticket,
)
from sessions.models.session import (
    SESSION_ID,
    GpuShare,
    Lease,
    Placed,
    Scheduled,
    Session,
    SessionEvent,
    SessionQuerySet,
    SessionUsage,
    StaleSession,
    Told,
    has_succeeded,
    new_session_id,
)

__all__ = [
    "SESSION_ID",
    "TICKET_LIFE",
    "Endpoint",
    "EndpointEvent",
    "EndpointState",
    "GpuShare",
    "Lease",
    "Placed",
    "Revocation",
    "Scheduled",
    "Session",
    "SessionEvent",
    "SessionQuerySet",
    "SessionUsage",
    "ShareLink",
    "StaleSession",
    "Ticket",
    "Told",
    "has_succeeded",
    "new_session_id",
]
