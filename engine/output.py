"""What a container wrote, read from an engine near or behind a gateway."""

import asyncio
import calendar
import re
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final

from engine.engine import Engine, EngineConnectionError, EngineResponse, ExecError, refusal
from engine.frames import FrameReader, unframed
from engine.http import BoundedResponseParser, HttpResponseError

LOG_LIMIT: Final = 64 * 2**20  # bytes; the engine keeps a third of it of a session, in the engine's frames

_STAMP: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z")


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A piece of output, as the engine's log has it: a line, or a part of a long one."""

    stamp: str  # seconds since 1970 with nine decimals; entries may share one
    content: bytes


async def follow(engine: Engine, container: str, *, tail: int = 0, since: str = "") -> AsyncGenerator[LogEntry]:
    """Yield what the container wrote and writes, until it ends: the last `tail` lines, or those not before `since`.

    Nothing is yielded when the container is gone. Raises ExecError, and EngineConnectionError for a broken connection.
    """
    query = f"tail=all&follow=1&timestamps=1&since={since}" if since else f"tail={tail}&follow=1&timestamps=1"
    reader, writer = await engine.begin("GET", f"/containers/{container}/logs?stdout=1&stderr=1&{query}")
    parser, frames = BoundedResponseParser(), FrameReader()
    try:
        async for part in parser.stream(reader):
            if parser.status == 404:
                return
            if parser.status != 200:
                raise ExecError(refusal(EngineResponse(parser.status or 0, part)))
            for frame in frames.feed(part):
                yield _entry(frame)
    except (OSError, asyncio.IncompleteReadError) as error:
        raise EngineConnectionError("The container engine broke off its answer.") from error
    except HttpResponseError as error:
        raise ExecError(f"The container engine sent an answer that is not understood: {error}.") from error
    finally:
        writer.close()


def _entry(frame: bytes) -> LogEntry:
    """Return the entry of a frame that begins with its time. Raises ExecError."""
    stamp, _, content = frame.partition(b" ")
    found = _STAMP.fullmatch(stamp.decode("ascii", "replace"))
    if not found:
        raise ExecError("The container engine sent an answer that is not understood.")
    seconds = calendar.timegm(time.strptime(found[1], "%Y-%m-%dT%H:%M:%S"))
    return LogEntry(f"{seconds}.{(found[2] or '').ljust(9, '0')}", content)


async def last_lines(engine: Engine, container: str, tail: int) -> str:
    """Return the last `tail` lines of stdout and stderr in order, "" when the container is gone. Raises ExecError."""
    return unframed(await _last(engine, container, f"tail={tail}", LOG_LIMIT)).decode(errors="replace")


async def last_entries(engine: Engine, container: str, tail: int, *, limit: int) -> list[LogEntry]:
    """Return the last `tail` entries, of up to `limit` bytes together; none when the container is gone.

    Raises ExecError.
    """
    framed = await _last(engine, container, f"tail={tail}&timestamps=1", limit)
    return [_entry(frame) for frame in FrameReader().feed(framed)]


async def _last(engine: Engine, container: str, query: str, limit: int) -> bytes:
    answer = await engine.request("GET", f"/containers/{container}/logs?stdout=1&stderr=1&{query}", limit=limit)
    if answer.status == 404:
        return b""
    if not answer.is_success:
        raise ExecError(refusal(answer))
    return answer.body
