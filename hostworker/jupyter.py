"""Asks a Jupyter server in a container when it was last used. No Django; the other end may be hostile."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any, Final

SECONDS: Final = 5.0  # for one exchange
BODY_LIMIT: Final = 2**20  # bytes
BUSY: Final = "busy"
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
    told = [*found, status if isinstance(status, dict) else {}]
    moments = [moment for each in told if (moment := _moment(each.get("last_activity")))]
    return min(now, max(moments)) if moments else None


async def _get(address: str, port: int, token: str, path: str) -> Any:
    """Return the JSON at the path; None for anything but 200 with JSON, in time and of a bounded length."""
    try:
        async with asyncio.timeout(SECONDS):
            head, _, body = (await _exchange(address, port, token, path)).partition(b"\r\n\r\n")
        return json.loads(body) if head.split(b" ", 2)[1:2] == [b"200"] else None
    except (OSError, ValueError, RecursionError):
        return None


async def _exchange(address: str, port: int, token: str, path: str) -> bytes:
    """Return the response. HTTP/1.0, so that it ends with the connection and comes in one piece."""
    reader, writer = await asyncio.open_connection(address, port)
    try:
        head = f"GET {path} HTTP/1.0\r\nHost: localhost:{port}\r\nAuthorization: token {token}\r\n\r\n"
        writer.write(head.encode())
        answer = b""
        while len(answer) < BODY_LIMIT and (data := await reader.read(BODY_LIMIT)):
            answer += data
        return answer
    finally:
        writer.transport.abort()


def _moment(text: object) -> datetime | None:
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
