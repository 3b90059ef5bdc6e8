"""What a container wrote, read from an engine near or behind a gateway."""

from typing import Final

from sessions.proxy.engine import Engine, ExecFailed, refusal

LOG_LIMIT: Final = 64 * 2**20  # bytes; the engine keeps a third of it of a session, in the engine's frames
FRAME_HEAD: Final = 8  # bytes: which stream, three of nothing, and four of length


async def last_lines(engine: Engine, container: str, tail: int) -> str:
    """Return the last `tail` lines of stdout and stderr in order, "" when the container is gone. Raises ExecFailed."""
    path = f"/containers/{container}/logs?stdout=1&stderr=1&tail={tail}"
    answer = await engine.request("GET", path, limit=LOG_LIMIT)
    if answer.status == 404:
        return ""
    if not answer.is_success:
        raise ExecFailed(refusal(answer))
    return _unframed(answer.body).decode(errors="replace")


def _unframed(framed: bytes) -> bytes:
    """Return the contents of the frames in which the engine sends what a process without a terminal wrote."""
    contents, at = [], 0
    while at + FRAME_HEAD <= len(framed):
        end = at + FRAME_HEAD + int.from_bytes(framed[at + 4 : at + FRAME_HEAD], "big")
        contents.append(framed[at + FRAME_HEAD : end])
        at = end
    return b"".join(contents)
