"""What a container wrote, read from an engine near or behind a gateway."""

from typing import Final

from engine.engine import Engine, ExecError, refusal
from engine.frames import unframed

LOG_LIMIT: Final = 64 * 2**20  # bytes; the engine keeps a third of it of a session, in the engine's frames


async def last_lines(engine: Engine, container: str, tail: int) -> str:
    """Return the last `tail` lines of stdout and stderr in order, "" when the container is gone. Raises ExecError."""
    path = f"/containers/{container}/logs?stdout=1&stderr=1&tail={tail}"
    answer = await engine.request("GET", path, limit=LOG_LIMIT)
    if answer.status == 404:
        return ""
    if not answer.is_success:
        raise ExecError(refusal(answer))
    return unframed(answer.body).decode(errors="replace")
