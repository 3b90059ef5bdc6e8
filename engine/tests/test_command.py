"""Commands: what they write is kept apart, in whichever order the engine copies it."""

import asyncio
from typing import Any, cast

from engine.command import ERRORS, Command
from engine.engine import Engine

OUTPUT = 1


def frame(stream: int, data: bytes) -> bytes:
    return bytes([stream, 0, 0, 0]) + len(data).to_bytes(4) + data


async def test_errors_that_overtake_the_process_id_are_errors_still() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(frame(ERRORS, b"bad\n") + frame(OUTPUT, b"71\ngood\n"))
    reader.feed_eof()
    command = Command(cast(Engine, None), "1", (reader, cast(Any, None)))
    assert await command._first_line() == b"71\n"
    assert [await command.read(), await command.read()] == [(b"bad\n", True), (b"good\n", False)]


async def test_errors_alone_say_why_nothing_started() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(frame(ERRORS, b"no such program"))
    reader.feed_eof()
    assert await Command(cast(Engine, None), "1", (reader, cast(Any, None)))._first_line() == b"no such program"
