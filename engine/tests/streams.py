"""Reading what a process in a container writes."""

import asyncio

from engine.exec_stream import ExecStream
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
