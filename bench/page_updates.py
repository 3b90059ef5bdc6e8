"""How long it takes until many open lists show a change: from the commit until the last websocket has its message."""

import asyncio
import json
import statistics
import time
from collections.abc import Mapping
from typing import Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Origin

from bench.fresh_services import shell_output
from bench.sizes import size

CHANGES: Final = size(10, 2)
EVERY_SECONDS: Final = size(1.0, 0.1)
TIMEOUT_SECONDS: Final = 60.0
CHANGE: Final = """
import time
from sessions import notify
from sessions.models import Session
for session in Session.objects.filter(status="RUNNING")[:{changes}]:
    Session.objects.filter(pk=session.pk).update(name=session.name + "-renamed")
    notify.sessions_changed([(session.pk, session.owner_id, session.project_id)])
    print(session.pk, time.time(), flush=True)
    time.sleep({seconds})
"""


async def measure(address: str, cookie: str, browsers: int, environment: Mapping[str, str]) -> float:
    """Return the median of the milliseconds until the last of `browsers` open lists of a superadmin has a change."""
    sockets = [await _open(address, cookie) for _ in range(browsers)]
    arrived: dict[str, list[float]] = {}
    readers = [asyncio.create_task(_read(socket, arrived)) for socket in sockets]
    code = CHANGE.format(changes=CHANGES, seconds=EVERY_SECONDS)
    changes = [line.split() for line in await asyncio.to_thread(shell_output, environment, code)]
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while any(len(arrived.get(pk, ())) < browsers for pk, _ in changes) and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    for task in readers:
        task.cancel()
    await asyncio.gather(*readers, *(socket.close() for socket in sockets), return_exceptions=True)
    missing = [pk for pk, _ in changes if len(arrived.get(pk, ())) < browsers]
    if missing:
        raise RuntimeError(f"{len(missing)} of {len(changes)} changes did not reach every browser")
    return round(statistics.median((max(arrived[pk]) - float(at)) * 1000 for pk, at in changes), 1)


async def _open(address: str, cookie: str) -> ClientConnection:
    socket = await connect(
        f"ws://{address}/ws/sessions/list/",
        origin=Origin(f"http://{address}"),
        additional_headers={"Cookie": f"gp_session={cookie}"},
        open_timeout=TIMEOUT_SECONDS,
        ping_interval=None,
    )
    await socket.send(json.dumps({"watch": {"tab": "running", "group": 1, "language": "en"}}))
    return socket


async def _read(socket: ClientConnection, arrived: dict[str, list[float]]) -> None:
    async for text in socket:
        now = time.time()
        for row in json.loads(text).get("rows", ()):
            arrived.setdefault(row["id"], []).append(now)
