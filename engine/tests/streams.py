"""Reading what a process in a container writes."""

import asyncio

from engine.exec_stream import ExecStream
from tests.containers import Container
from tests.wait import SECONDS


async def read_until(stream: ExecStream, text: str) -> str:
    """Return the output up to and including `text`."""
    output = b""
    async with asyncio.timeout(SECONDS):
        while text.encode() not in output:
            data = await stream.read()
            assert data, f"ended before {text!r}: {output!r}"
            output += data
    return output.decode(errors="replace")


def bytes_written(container: Container) -> int:
    """Return the length of /tmp/written in the container; 0 while it is not there, since no process has begun it."""
    return int(container.run("busybox cat /tmp/written 2>/dev/null | busybox wc -c"))
