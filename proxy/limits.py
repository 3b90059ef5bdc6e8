"""How much the data plane takes: sizes, times, connections."""

import resource
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyLimits:
    """Times in seconds, sizes in bytes. Bodies and messages of websockets have no limit: they stream."""

    head_bytes: int = 64 * 1024  # of a request
    response_head_bytes: int = 256 * 1024  # of an app's answer
    head_seconds: float = 15  # for the client to send a head
    idle_seconds: float = 75  # between two requests on a connection
    connect_seconds: float = 5
    response_seconds: float = 300  # for the app to begin its answer
    linger_seconds: float = 2  # for the client to read an answer that ends the connection
    idle_upstream_seconds: float = (
        1.5  # an idle connection to an app is kept: less than any server in use closes it after
    )
    idle_upstream_connections: int = 32  # idle ones an endpoint
    per_endpoint: int = 200  # connections at once
    per_user: int = 1000
    per_anonymous_address: int = 50
    # Connections that have shown no right to use an app: before their first head, at the log-in, or refused. A /64 of
    # IPv6 counts as one address, reverse proxies not at all. Each may hold `head_bytes`.
    pending_per_address: int = 256
    pending: int = 4096


# A gateway's clients are web processes, which have counted their visitors already.
GATEWAY_LIMITS: Final = ProxyLimits(
    idle_seconds=300, per_endpoint=10_000, per_anonymous_address=10**6, pending_per_address=2048
)


def raise_open_file_limit() -> None:
    """Let this process have as many files open as the system allows it: each connection is one.

    What systems begin with, often 1024, is a number that any stranger can open and leave idle.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
