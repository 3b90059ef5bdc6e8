"""Asks a Jupyter server in a container when it was last used. No Django; the other end may be hostile."""

import json
from datetime import UTC, datetime
from typing import Any, Final

from engine.http import HttpResponseError, get

TIMEOUT_SECONDS: Final = 5.0  # for one exchange
BODY_LIMIT: Final = 2**20  # bytes
BUSY: Final = "busy"
EARLIEST: Final = datetime(2020, 1, 1, tzinfo=UTC)  # before which a host may write no time (hostaccess/grants.py)
TOKEN_VARIABLE: Final = "JUPYTER_TOKEN"  # noqa: S105  # by which apps that are Jupyter servers take their token


async def last_use(address: str, port: int, token: str, now: datetime) -> datetime | None:
    """Return when the server or one of its kernels last had something to do; None where it does not say.

    A kernel that computes is used now. Asking is no use: the server is told not to count it.
    """
    status = await _get(address, port, token, "/api/status?no_track_activity=1")
    kernels = await _get(address, port, token, "/api/kernels?no_track_activity=1")
    found = [each for each in kernels if isinstance(each, dict)] if isinstance(kernels, list) else []
    if any(kernel.get("execution_state") == BUSY for kernel in found):
        return now
    sources = [*found, status if isinstance(status, dict) else {}]
    moments = [moment for each in sources if (moment := _moment(each.get("last_activity")))]
    return min(now, max(moments)) if moments else None


async def _get(address: str, port: int, token: str, path: str) -> Any:
    """Return the JSON at the path; None for anything but 200 with JSON, in time and of a bounded length."""
    headers = {"Authorization": f"token {token}"}
    try:
        response = await get(address, port, path, headers, timeout_seconds=TIMEOUT_SECONDS, limit=BODY_LIMIT)
        return json.loads(response.body) if response.status == 200 else None
    except (OSError, HttpResponseError, ValueError, RecursionError):
        return None


def _moment(text: object) -> datetime | None:
    try:
        said = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    moment = said if said.tzinfo else said.replace(tzinfo=UTC)
    return moment if moment >= EARLIEST else None
