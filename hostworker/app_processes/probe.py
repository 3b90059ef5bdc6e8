"""Asks an app in a container whether it responds. Pure but for the socket; the other end may be hostile."""

import asyncio
from enum import Enum
from typing import Final

from engine.http import HttpResponseError, get_status

TIMEOUT_SECONDS: Final = 2.0  # for the whole exchange
HEADERS: Final = {"User-Agent": "gpuplatform"}


class ProbeResult(Enum):
    """How a server responded to a probe."""

    OK = "responds"  # HTTP, and no error of its own
    ERROR = "responds with an error"  # HTTP 5xx
    NOT_HTTP = "does not speak HTTP"
    NO_RESPONSE = "does not respond"  # it took the connection, and no more; or the address cannot be reached
    REFUSED = "is not listening"


def probe(address: str, port: int, path: str = "/") -> ProbeResult:
    """GET the path and classify the response by its status line; for threads without an event loop."""
    request = get_status(address, port, path, HEADERS, timeout_seconds=TIMEOUT_SECONDS)
    try:
        status = asyncio.run(request)
    except ConnectionRefusedError:
        return ProbeResult.REFUSED
    except OSError:
        return ProbeResult.NO_RESPONSE
    except HttpResponseError:
        return ProbeResult.NOT_HTTP
    if status is None:
        return ProbeResult.NO_RESPONSE
    return ProbeResult.ERROR if status >= 500 else ProbeResult.OK
