"""Limits of the data plane: sizes, timeouts and numbers of connections."""

import resource
from dataclasses import dataclass
from typing import Final

MIN_OPEN_FILES: Final = 4096  # of a process that serves or starts sessions; the hard limit of old login shells


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyLimits:
    """Times in seconds, sizes in bytes. Bodies and websocket messages have no limit: they are streamed."""

    head_bytes: int = 64 * 1024  # request line and header section
    response_head_bytes: int = 256 * 1024  # status line and header section of an app's response
    head_seconds: float = 15  # for the client to send a header section
    idle_seconds: float = 75  # between two requests on a connection
    connect_seconds: float = 5
    body_seconds: float = 60  # for more of the body of a request at a service's replica, and to read of its response
    response_seconds: float = 300  # for the app to start its response
    queue_seconds: float = 60  # for a request to wait for a replica
    first_request_seconds: float = 1  # for a request that was on its way when the server began to shut down
    linger_seconds: float = 2  # for the client to read the last response of a connection
    idle_upstream_seconds: float = 1.5  # for which an idle connection is kept, shorter than the servers in use keep it
    idle_upstreams_per_endpoint: int = 32
    connections_per_endpoint: int = 200
    connections_per_service: int = 10_000
    connections_per_user: int = 1000
    connections_per_anonymous_address: int = 50
    # Pending connections have not been authorized: before their first request, at the login, or refused. A /64 of IPv6
    # counts as one address, trusted proxies not at all. Each may hold `head_bytes`.
    pending_per_address: int = 256
    pending_total: int = 4096


# The clients of a gateway are web processes, which have counted their users' connections already.
GATEWAY_LIMITS: Final = ProxyLimits(
    idle_seconds=300,
    connections_per_endpoint=10_000,
    connections_per_anonymous_address=10**6,
    pending_per_address=2048,
)


class OpenFileLimitError(Exception):
    """The hard limit on open files is too low to serve."""


def open_file_problem() -> str:
    """Return why this process may not open enough files, or ""."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard_limit == resource.RLIM_INFINITY or hard_limit >= MIN_OPEN_FILES:
        return ""
    return (
        f"at most {hard_limit} files may be open, and {MIN_OPEN_FILES} are needed: "
        "raise the hard limit (`ulimit -Hn`, LimitNOFILE= of systemd, --ulimit nofile of Docker)"
    )


def raise_open_file_limit() -> None:
    """Raise this process's soft limit on open files to the hard limit: each connection is a file.

    The usual soft limit of 1024 is a number that any client can open and leave idle. Raises OpenFileLimitError where
    the hard limit is below MIN_OPEN_FILES.
    """
    if problem := open_file_problem():
        raise OpenFileLimitError(problem)
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
