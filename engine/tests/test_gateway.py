"""The engine gateway: what goes through, and what is left when things break."""

import asyncio
import hashlib
import json
import logging
import secrets
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from docker.api import APIClient

from engine.containers import container_name
from engine.engine import Engine, ExecError
from engine.exec_stream import ExecStream, is_running
from engine.gateway import EngineGateway, signer
from engine.output import follow, last_lines
from engine.shell import Shell
from engine.tests.gateways import (
    HOST,
    KEYS,
    of_session,
    raw,
    running_gateway,
    settled,
    written,
)
from engine.tests.streams import bytes_written, read_until
from proxy.authorization.signing import Keys
from tests.containers import ENGINE_URL, Container
from tests.ports import free_port
from tests.tiny_image import ensure_tiny_image
from tests.wait import SECONDS, eventually

LOGS = "stdout=1&stderr=1&tail=5&follow=1&timestamps=1"

# --- what goes through


@pytest.mark.docker
async def test_a_shell_works_through_the_gateway_and_leaves_nothing(
    passed: tuple[str, EngineGateway], far: Engine, shared: Container
) -> None:
    shell = await Shell.start(far, shared.id)
    await shell.resize(132, 43)
    await shell.write("echo grüße $((6*7)); busybox stty size; exit 3\r".encode())
    assert "grüße 42\r\n43 132" in await read_until(shell, "43 132")
    while await shell.read():
        pass
    assert await shell.ended() == 3
    assert await shell.is_container_running()
    await shell.hang_up()
    await settled(passed[1])
    await eventually(lambda: not shared.processes())


@pytest.mark.docker
async def test_hanging_up_through_the_gateway_ends_what_the_shell_runs(
    passed: tuple[str, EngineGateway], far: Engine, shared: Container
) -> None:
    shell = await Shell.start(far, shared.id)
    await shell.write(b"echo rea''dy; sleep 1000\r")
    await read_until(shell, "ready")
    await shell.hang_up()
    await eventually(lambda: not shared.processes())
    await settled(passed[1])


@pytest.mark.docker
async def test_logs_through_gateway_equal_local_logs(far: Engine) -> None:
    session = secrets.token_hex(8)
    client = APIClient(ENGINE_URL, version="auto")
    script = "for n in 1 2 3; do echo out $n; echo err $n >&2; sleep 0.01; done"
    name = container_name(session, 1)
    client.create_container(ensure_tiny_image(), ["sh", "-c", script], name=name, labels=of_session(session))
    try:
        client.start(name)
        client.wait(name)
        assert await last_lines(far, name, 100) == client.logs(name).decode()
        assert await last_lines(far, name, 2) == client.logs(name, tail=2).decode()
        followed = [entry async for entry in follow(far, name, tail=100)]
        assert b"".join(entry.content for entry in followed) == client.logs(name)
        later = [entry async for entry in follow(far, name, since=followed[3].stamp)]
        assert later[0].content in {entry.content for entry in followed if entry.stamp == followed[3].stamp}
        assert later[-1] == followed[-1]
    finally:
        client.remove_container(name)
        client.close()
    assert await last_lines(far, name, 100) == ""


@pytest.mark.docker
async def test_slow_reader_gets_all_output_through_bounded_gateway_memory(far: Engine, shared: Container) -> None:
    shared.run("head -c 20000000 /dev/urandom > /tmp/big")
    stream = await ExecStream.open(far, shared.id, ["sh", "-c", "busybox stty raw; cat /tmp/big"], {})
    digest = hashlib.md5()
    while data := await stream.read():
        digest.update(data)
        await asyncio.sleep(0.0005)
    stream.close()
    assert digest.hexdigest() == shared.run("busybox md5sum < /tmp/big").split()[0]


@pytest.mark.docker
async def test_an_unread_shell_stops_writing_behind_the_gateway_too(far: Engine, container: Container) -> None:
    stream = await ExecStream.open(far, container.id, ["sh", "-c", "busybox yes | busybox tee /tmp/written"], {})
    sizes = [-1, -2]
    async with asyncio.timeout(SECONDS):
        while sizes[-1] != sizes[-2] or sizes[-1] == 0:
            await asyncio.sleep(0.3)
            sizes.append(await asyncio.to_thread(bytes_written, container))
    assert sizes[-1] < 16 * 2**20  # what the sockets on the way take, whose size the kernel chooses
    stream.close()
    container.run("busybox pkill yes")  # else the engine takes 20 s to remove the container
    await eventually(lambda: not container.processes())


@pytest.mark.docker
async def test_a_paste_waits_for_a_process_that_does_not_read(far: Engine, shared: Container) -> None:
    text = secrets.token_bytes(1_000_000).hex().encode()
    command = ["sh", "-c", "busybox stty raw -echo; echo ready; sleep 0.5; head -c 2000000 | busybox md5sum"]
    stream = await ExecStream.open(far, shared.id, command, {})
    await read_until(stream, "ready")
    await stream.write(text)
    assert hashlib.md5(text).hexdigest() in await read_until(stream, "-")
    stream.close()


@pytest.mark.docker
async def test_gone_or_stopped_container_is_explained(far: Engine, container: Container) -> None:
    container.stop()
    with pytest.raises(ExecError, match="is not running"):
        await Shell.start(far, container.id)
    assert not await is_running(far, container.id)
    assert not await is_running(far, "gp-none-1")
    with pytest.raises(ExecError, match="no longer exists"):
        await Shell.start(far, "gp-none-1")


# --- what is left when things break


@pytest.mark.loopback
async def test_a_gateway_that_is_away_is_explained_in_words() -> None:
    async with running_gateway(port=free_port()) as (url, _):
        pass
    with pytest.raises(ExecError, match="gateway of the session's host cannot be reached"):
        await Shell.start(Engine(url, signer(KEYS, HOST)), "gp-none-1")


async def test_unreachable_engine_behind_gateway_is_explained(tmp_path: Path) -> None:
    async with running_gateway(f"unix://{tmp_path}/none.sock") as (url, gateway):
        with pytest.raises(ExecError, match=r"^The container engine cannot be reached\.$"):
            await Shell.start(Engine(url, signer(KEYS, HOST)), "gp-none-1")
        await settled(gateway)


@pytest.mark.docker
async def test_wrong_keys_are_explained_in_words(passed: tuple[str, EngineGateway], shared: Container) -> None:
    far = Engine(passed[0], signer(Keys(["k:" + "x" * 32]), HOST))
    for attempt in (Shell.start(far, shared.id), last_lines(far, shared.id, 5), is_running(far, shared.id)):
        with pytest.raises(ExecError, match="gateway of the session's host refused the request"):
            await attempt


@pytest.mark.parametrize("url", ["https://gpu7:1", "http://gpu7", "http://gpu7:99999", "unix:///x", "tcp://gpu7:1", ""])
async def test_other_kinds_of_gateway_addresses_are_refused(url: str) -> None:
    with pytest.raises(ExecError, match="not http://host:port"):
        await Engine(url, signer(KEYS, HOST)).request("GET", "/x")


async def test_a_gateway_that_ends_completes_requests_and_cuts_streams(tmp_path: Path) -> None:
    streaming, answering = asyncio.Event(), asyncio.Event()
    container = {"Id": "x", "Name": "/gp-abc-1", "Config": {"Labels": of_session("abc")}, "State": {"Running": True}}
    body = json.dumps(container).encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if b"/logs" in await reader.readuntil(b"\r\n\r\n"):
            writer.write(b"HTTP/1.1 200 OK\r\n\r\nfirst")
            streaming.set()
            await reader.read()
        else:
            await answering.wait()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        writer.close()

    engine = await asyncio.start_unix_server(answer, tmp_path / "engine")
    async with engine, running_gateway(f"unix://{tmp_path}/engine") as (url, gateway):
        answering.set()
        stream = asyncio.create_task(raw(url, written("GET", f"/containers/gp-abc-1/logs?{LOGS}")))
        await asyncio.wait_for(streaming.wait(), SECONDS)
        answering.clear()
        request = asyncio.create_task(raw(url, written("GET", "/containers/gp-abc-1/json")))
        await eventually(lambda: gateway.connections == 2)
        closing = asyncio.create_task(gateway.close(request_seconds=SECONDS))
        await asyncio.wait([closing], timeout=0.2)
        assert not closing.done()
        answering.set()
        assert (await request).endswith(b'{"State": {"Running": true}}')
        assert (await stream).endswith(b"first")
        await closing


@pytest.mark.docker
async def test_gateway_restart_ends_shells_which_are_hung_up(
    shared: Container, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.shell.EXIT_CHECKS", 10**6)  # which nobody could wait for
    monkeypatch.setattr("engine.shell.PROBE_SECONDS", SECONDS)
    caplog.set_level(logging.ERROR)
    async with running_gateway(port=free_port()) as (url, gateway):
        shell = await Shell.start(Engine(url, signer(KEYS, HOST)), shared.id)
        await shell.write(b"echo rea''dy; sleep 1000\r")
        await read_until(shell, "ready")
        await eventually(lambda: gateway.connections == 1)
    async with asyncio.timeout(SECONDS):
        while await shell.read():  # the line's end may come apart from the line
            pass
    assert gateway.connections == 0
    async with running_gateway(port=urlsplit(url).port or 0) as (_, again):
        async with asyncio.timeout(SECONDS):
            assert await shell.is_container_running() is True
        await shell.hang_up()
        await eventually(lambda: not shared.processes())
        await settled(again)
    assert caplog.records == []


@pytest.mark.docker
async def test_a_gateway_that_ends_waits_a_while_for_requests(
    passed: tuple[str, EngineGateway], far: Engine, shared: Container
) -> None:
    shell = await Shell.start(far, shared.id)
    closing = asyncio.create_task(passed[1].close(SECONDS))
    await shell.write(b"echo $((6*7)); exit 3\r")
    assert "42" in await read_until(shell, "42")
    while await shell.read():
        pass
    assert await shell.ended() == 3
    await closing
    shell.close()
    await settled(passed[1])

    shell = await Shell.start(far, shared.id)
    await passed[1].close(0.1)
    assert passed[1].connections == 0
    await shell.hang_up()


@pytest.mark.docker
async def test_dead_web_process_leaves_no_connections(
    passed: tuple[str, EngineGateway], far: Engine, container: Container
) -> None:
    shells = [await Shell.start(far, container.id) for _ in range(5)]
    await eventually(lambda: passed[1].connections == 5)
    for shell in shells:
        shell.close()
    await settled(passed[1])


@pytest.mark.docker
async def test_no_request_leaves_a_task_or_an_error_behind(
    passed: tuple[str, EngineGateway], far: Engine, shared: Container, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    loop = asyncio.get_running_loop()
    before = len(asyncio.all_tasks())
    for _ in range(20):
        assert await is_running(far, shared.id)
        await raw(passed[0], b"nonsense\r\n\r\n")
    await eventually(lambda: len(asyncio.all_tasks(loop)) <= before)
    assert caplog.records == []
