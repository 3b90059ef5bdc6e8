"""The engine's HTTP, against small servers that misbehave."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from engine import engine as engine_module
from engine.engine import Engine, ExecError
from tests.ports import free_port


@asynccontextmanager
async def serving(folder: Path, chunks: list[bytes], *, then_close: bool = True) -> AsyncIterator[Engine]:
    """An engine that answers every request with these chunks, each sent on its own."""
    answered = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):  # who asks may give up before all is sent
            await reader.readuntil(b"\r\n\r\n")
            for chunk in chunks:
                writer.write(chunk)
                await writer.drain()
                await asyncio.sleep(0.001)  # lets the chunk travel alone
            if not then_close:
                await reader.read()
        writer.close()
        answered.set()

    path = folder / "engine.sock"
    async with await asyncio.start_unix_server(answer, path):
        yield Engine(f"unix://{path}")
        await answered.wait()


async def test_head_arriving_byte_by_byte_keeps_the_stream_whole(tmp_path: Path) -> None:
    head = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
    chunks = [head[i : i + 1] for i in range(len(head))] + [b"\x00\xff", b"prompt$ "]
    async with serving(tmp_path, chunks) as engine:
        reader, writer = await engine.hijack("/exec/1/start", {})
        assert await reader.read(-1) == b"\x00\xffprompt$ "
        writer.close()


async def test_first_output_may_share_a_packet_with_head(tmp_path: Path) -> None:
    packet = b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\nHTTP/1.1 is my output"
    async with serving(tmp_path, [packet]) as engine:
        reader, writer = await engine.hijack("/exec/1/start", {})
        assert await reader.read(-1) == b"HTTP/1.1 is my output"
        writer.close()


async def test_a_chunked_answer_in_pieces_is_put_together(tmp_path: Path) -> None:
    chunks = [b"HTTP/1.1 200 OK\r\nTransfer-Enco", b'ding: chunked\r\n\r\n4\r\n{"a"\r\n3\r', b"\n:1}\r\n0\r\n\r\n"]
    async with serving(tmp_path, chunks) as engine:
        assert (await engine.request("GET", "/x")).json() == {"a": 1}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}", "no longer exists"),
        (b'HTTP/1.1 409 Conflict\r\nContent-Length: 29\r\n\r\n{"message":"c is paused now"}', "is paused"),
        (b"HTTP/1.1 409 Conflict\r\nContent-Length: 2\r\n\r\n{}", "is not running"),
        (b'HTTP/1.1 500 Oops\r\nContent-Length: 18\r\n\r\n{"message":"boom"}', "refused: boom"),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\noops", "refused: status 500"),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 9\r\n\r\noops", "broke off"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "not understood"),
        (b"HTTP/1.1 101 UPGRADED\r\nX: " + b"x" * 200_000, "not understood"),
        (b"HTTP/1.1 101 UPGR", "broke off"),
        (b"", "broke off"),
    ],
)
async def test_a_refusal_is_explained_in_words(tmp_path: Path, answer: bytes, words: str) -> None:
    async with serving(tmp_path, [answer]) as engine:
        with pytest.raises(ExecError, match=words):
            await engine.hijack("/exec/1/start", {})


async def test_an_endless_answer_is_cut_off(tmp_path: Path) -> None:
    async with serving(tmp_path, [b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 2000], then_close=False) as engine:
        with pytest.raises(ExecError, match="too long"):
            await engine.request("GET", "/x", limit=1000)


async def test_a_mute_engine_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "RESPONSE_TIMEOUT_SECONDS", 0.05)
    async with serving(tmp_path, [b"HTTP/1.1 200 OK\r\n"], then_close=False) as engine:
        with pytest.raises(ExecError, match="does not answer"):
            await engine.request("GET", "/x")


@pytest.mark.loopback
async def test_an_engine_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    for url in (f"unix://{tmp_path}/none.sock", f"tcp://127.0.0.1:{free_port()}"):
        with pytest.raises(ExecError, match="cannot be reached"):
            await Engine(url).request("GET", "/x")


@pytest.mark.parametrize("url", ["ssh://host", "tcp://host", "/var/run/docker.sock", ""])
async def test_an_address_of_another_kind_is_refused_in_words(url: str) -> None:
    with pytest.raises(ExecError, match="neither unix"):
        await Engine(url).request("GET", "/x")
