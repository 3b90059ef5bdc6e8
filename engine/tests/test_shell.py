"""Shells in real containers."""

import asyncio
import hashlib
import secrets
import tracemalloc
from unittest.mock import AsyncMock

import pytest

from engine.engine import Engine, EngineResponse, ExecError
from engine.exec_stream import ExecStream
from engine.shell import CUT_OFF, Shell
from engine.tests.streams import bytes_written, read_until
from tests.containers import ENGINE_URL, Container
from tests.wait import SECONDS, eventually

pytestmark = pytest.mark.docker

FLOOD = "busybox yes | busybox tee /tmp/written"


async def test_a_shell_runs_commands_and_reports_its_exit_code(shell: Shell) -> None:
    await shell.write(b"echo $((6*7))\rexit 3\r")
    assert "42" in await read_until(shell, "\r\n42\r\n")
    async with asyncio.timeout(SECONDS):
        while await shell.read():
            pass
        assert await shell.ended() == 3


async def test_the_window_has_the_size_asked_for(shell: Shell) -> None:
    await shell.resize(132, 43)
    await shell.write(b"busybox stty size\r")
    assert "43 132" in await read_until(shell, "43 132")


async def test_control_p_is_not_held_back(shell: Shell) -> None:
    await shell.write(b"busybox stty raw -echo; echo rea''dy; head -c 2\r")
    await read_until(shell, "ready")
    await shell.write(b"\x10")
    assert "\x10" in await read_until(shell, "\x10")
    await shell.write(b"\x11")


async def test_the_container_decides_the_user_and_the_terminal_is_named(full: Container) -> None:
    stream = await ExecStream.open(Engine(ENGINE_URL), full.id, ["sh", "-c", "pwd; echo $TERM; exit 0"], {"TERM": "x"})
    assert "/home/work\r\nx\r\n" in await read_until(stream, "\r\nx\r\n")
    stream.close()


async def test_a_paste_of_100_kb_arrives_whole(shell: Shell, bare: Container) -> None:
    lines = [secrets.token_hex(40).encode() for _ in range(1300)]
    text = b"\n".join(lines) + b"\n"
    assert len(text) > 100_000
    await shell.write(b"busybox stty -echo; cat > /tmp/pasted; echo do''ne\r")
    reader = asyncio.create_task(read_until(shell, "done"))
    for start in range(0, len(text), 16_384):
        await shell.write(text[start : start + 16_384])
    await shell.write(b"\x04")
    await reader
    assert bare.run("busybox md5sum < /tmp/pasted").split()[0] == hashlib.md5(text).hexdigest()


async def test_slow_reader_gets_all_output_within_bounded_memory(bare: Container) -> None:
    size = 20_000_000
    bare.run(f"head -c {size} /dev/urandom > /tmp/big")
    command = ["sh", "-c", "busybox stty raw; cat /tmp/big"]
    tracemalloc.start()
    stream = await ExecStream.open(Engine(ENGINE_URL), bare.id, command, {})
    digest, received = hashlib.md5(), 0
    while data := await stream.read():
        digest.update(data)
        received += len(data)
        await asyncio.sleep(0.001)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    stream.close()
    assert received == size
    assert digest.hexdigest() == bare.run("busybox md5sum < /tmp/big").split()[0]
    assert most < 8 * 2**20


async def test_an_unread_shell_stops_writing(bare: Container) -> None:
    stream = await ExecStream.open(Engine(ENGINE_URL), bare.id, ["sh", "-c", FLOOD], {})
    assert await bytes_until_it_stops(bare) < 4 * 2**20
    stream.close()


async def bytes_until_it_stops(container: Container) -> int:
    """Return how much FLOOD has written once nobody takes any more of it."""
    sizes = [-1, -2]
    async with asyncio.timeout(SECONDS):
        while sizes[-1] != sizes[-2] or sizes[-1] == 0:
            await asyncio.sleep(0.3)
            sizes.append(await asyncio.to_thread(bytes_written, container))
    return sizes[-1]


async def test_shell_in_stopped_or_missing_container_is_refused(bare: Container) -> None:
    bare.stop()
    with pytest.raises(ExecError, match="is not running"):
        await Shell.start(Engine(ENGINE_URL), bare.id)
    with pytest.raises(ExecError, match="no longer exists"):
        await Shell.start(Engine(ENGINE_URL), "gptest-none")


async def test_reading_ends_when_the_container_is_killed(shell: Shell, bare: Container) -> None:
    await shell.write(b"echo rea''dy; sleep 1000\r")
    await read_until(shell, "ready")
    await asyncio.to_thread(bare.stop)
    async with asyncio.timeout(SECONDS):
        while await shell.read():
            pass
    assert not await shell.is_container_running()
    await shell.write(b"into the void")


async def test_thirty_shells_at_once_answer_and_leave_nothing(bare: Container) -> None:
    shells = await asyncio.gather(*(Shell.start(Engine(ENGINE_URL), bare.id) for _ in range(30)))
    await asyncio.gather(*(one.write(b"echo $((%d*1000))\r" % number) for number, one in enumerate(shells, 1)))
    await asyncio.gather(*(read_until(one, f"\r\n{number * 1000}\r\n") for number, one in enumerate(shells, 1)))
    await asyncio.gather(*(one.hang_up() for one in shells))
    await eventually(lambda: not bare.processes())


@pytest.mark.parametrize("running", ["", "sleep 1000", "sleep 1001 & sleep 1002", "cat"])
async def test_hanging_up_ends_the_shell_and_what_it_runs(bare: Container, running: str) -> None:
    shell = await Shell.start(Engine(ENGINE_URL), bare.id)
    await shell.write(b"echo rea''dy; " + running.encode() + b"\r")
    await read_until(shell, "ready")
    await shell.hang_up()
    await eventually(lambda: not bare.processes())


async def test_engine_reports_126_for_undeliverable_output(bare: Container) -> None:
    shell = await Shell.start(Engine(ENGINE_URL), bare.id)
    await shell.write(FLOOD.encode() + b"\r")
    await bytes_until_it_stops(bare)
    shell.close()
    async with asyncio.timeout(SECONDS):
        while (code := await shell.exit_code()) is None:
            await asyncio.sleep(0.05)
    assert code == CUT_OFF
    await shell.hang_up()


async def test_hang_up_ends_running_shell_despite_code_126(bare: Container, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = await Shell.start(Engine(ENGINE_URL), bare.id)
    monkeypatch.setattr(shell, "exit_code", AsyncMock(return_value=CUT_OFF))
    await shell.hang_up()
    await eventually(lambda: not bare.processes())


async def test_a_state_without_exit_code_is_no_end(bare: Container, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = await Shell.start(Engine(ENGINE_URL), bare.id)
    half_written = EngineResponse(200, b'{"Running": false, "ExitCode": null}')
    with monkeypatch.context() as patch:
        patch.setattr(Engine, "request", AsyncMock(return_value=half_written))
        assert await shell.exit_code() is None
    await shell.hang_up()


async def test_hanging_up_goes_on_though_its_caller_is_cancelled(bare: Container) -> None:
    shell = await Shell.start(Engine(ENGINE_URL), bare.id)
    hanging_up = asyncio.create_task(shell.hang_up())
    await asyncio.sleep(0)
    hanging_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging_up
    await eventually(lambda: not bare.processes())


async def test_hanging_up_detaches_tmux_and_its_shell_lives_on(full: Container) -> None:
    first = await Shell.start(Engine(ENGINE_URL), full.id)
    await first.resize(100, 30)
    await read_until(first, "$ ")
    await first.write(b"mine=4711; sleep 1234 & echo rea''dy\r")
    await read_until(first, "ready")
    await first.hang_up()
    await eventually(lambda: full.run("tmux list-clients -t gp") == "")
    await eventually(lambda: any("sleep 1234" in line for line in full.processes()))
    second = await Shell.start(Engine(ENGINE_URL), full.id)
    await second.resize(100, 30)
    assert "ready" in await read_until(second, "ready")  # the old screen is drawn again
    await second.write(b"echo =$mine=\r")
    await read_until(second, "=4711=")
    await second.hang_up()


async def test_utf8_is_kept_by_bash_and_tmux(full: Container) -> None:
    shell = await Shell.start(Engine(ENGINE_URL), full.id)
    await shell.resize(100, 30)
    await read_until(shell, "$ ")
    await shell.write("echo grüße 日本 🚀 > ~/out.txt; cat ~/out.txt | wc -c\r".encode())
    await read_until(shell, "grüße")
    await eventually(lambda: full.run("cat ~/out.txt 2>/dev/null") == "grüße 日本 🚀\n")
    await shell.hang_up()
