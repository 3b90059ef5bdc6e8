"""A reader that pauses gets all output of a process that ends meanwhile, however much it was."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from engine.command import Command
from engine.engine import Engine, EngineResponse, ExecError
from engine.exec_stream import READ_AHEAD_BYTES, ExecStream
from engine.shell import PLAIN_START, Shell
from tests.containers import ENGINE_URL, Container

PAUSE_SECONDS = 3.5  # the engine discards output two seconds after the end
SIZES = range(1_300_000, 1_650_000, 25_000)  # what fills all buffers of engine and kernel is among them


class StatedEngine:
    """Answers questions for the state of an exec with `state`; with an error where there is none."""

    def __init__(self, state: bytes) -> None:
        self._state = state

    async def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> EngineResponse:
        if not self._state:
            raise ExecError("The container engine does not answer.")
        return EngineResponse(200, self._state)


def process(state: bytes, reader: asyncio.StreamReader) -> ExecStream:
    return ExecStream(cast(Engine, StatedEngine(state)), "1", (reader, cast(Any, None)))


async def pause_until_read(paused: ExecStream, size: int) -> None:
    """Pause until so many bytes were read ahead."""
    read = asyncio.Event()

    async def watch() -> None:
        while len(paused._ahead) < size:
            await asyncio.sleep(0.01)
        read.set()

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        tasks.create_task(watch())
        await paused.pause(read.wait())


@pytest.mark.parametrize("state", [b'{"Running": false, "ExitCode": 0}', b""], ids=["ended", "engine is silent"])
async def test_a_pause_reads_what_is_left_of_a_process(state: bytes) -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(b"left")
    paused = process(state, reader)
    await pause_until_read(paused, 4)
    reader.feed_data(b"over")
    reader.feed_eof()
    assert [await paused.read(), await paused.read(), await paused.read()] == [b"left", b"over", b""]


async def test_a_pause_holds_bounded_output() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(bytes(READ_AHEAD_BYTES + 1_000_000))
    paused = process(b"", reader)
    await pause_until_read(paused, READ_AHEAD_BYTES)
    assert len(paused._ahead) == READ_AHEAD_BYTES


async def test_a_pause_leaves_the_output_of_a_running_process(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(b"more")
    paused, was_asked = process(b"", reader), asyncio.Event()

    async def is_running() -> None:
        was_asked.set()

    monkeypatch.setattr(paused, "exit_code", is_running)
    async with asyncio.timeout(10):
        await paused.pause(was_asked.wait())
    assert not paused._ahead


@pytest.mark.docker
@pytest.mark.long(1)
async def test_a_commands_output_is_whole_after_a_long_pause(bare: Container) -> None:
    commands = [await Command.start(Engine(ENGINE_URL), bare.id, start_of(size), {}) for size in SIZES]
    assert await asyncio.gather(*map(size_after_pause, commands)) == list(SIZES)


@pytest.mark.docker
@pytest.mark.long(1)
async def test_a_terminals_output_is_whole_after_a_long_pause(bare: Container) -> None:
    shells = [await Shell.start(Engine(ENGINE_URL), bare.id, start_of(size)) for size in SIZES]
    assert await asyncio.gather(*map(size_after_pause, shells)) == list(SIZES)


def start_of(size: int) -> list[str]:
    return ["/bin/sh", "-c", PLAIN_START, "sh", f"head -c {size} /dev/zero"]


async def size_after_pause(running: Command | Shell) -> int:
    await running.pause(asyncio.sleep(PAUSE_SECONDS))
    size = 0
    while data := (await running.read())[0] if isinstance(running, Command) else await running.read():
        size += len(data)
    assert await running.ended() == 0
    running.close()
    return size
