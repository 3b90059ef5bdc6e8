"""A program in a running container, run to its end without input."""

from collections.abc import Mapping, Sequence

from engine.engine import Engine
from engine.exec_stream import READ_BYTES, Exec, create_exec
from engine.frames import unframed


async def run(
    engine: Engine, container_id: str, command: Sequence[str], environment: Mapping[str, str], *, limit: int
) -> tuple[int, bytes]:
    """Run `command` as the container's own user; return its exit code and what it wrote to stdout and stderr, in order.

    Output beyond `limit` bytes is not read; how a program ends whose output is not read is up to the program.
    Raises ExecError. The caller bounds the time.
    """
    attached = {"AttachStdout": True, "AttachStderr": True}
    exec_id = await create_exec(engine, container_id, command, environment, attached)
    streams = await engine.hijack(f"/exec/{exec_id}/start", {"Tty": False, "Detach": False})
    process, framed = Exec(engine, exec_id, streams), bytearray()
    try:
        while len(framed) < limit and (data := await streams[0].read(READ_BYTES)):
            framed += data
    except ConnectionError:  # the exit code says how the program ended
        pass
    finally:
        process.close()
    return await process.ended(), unframed(bytes(framed[:limit]))
