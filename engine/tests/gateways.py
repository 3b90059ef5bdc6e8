"""An engine gateway in this process, on the engine of this machine, and requests to it byte by byte."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from engine.containers import HOST_LABEL, INSTALLATION_LABEL, container_name
from engine.engine import GATEWAY_PREFIX, Engine
from engine.gateway import EngineGateway, signer
from engine.http import HEAD_LIMIT
from proxy.authorization.signing import Keys
from tests.containers import ENGINE_URL, Container, running_container
from tests.tiny_image import ensure_tiny_image
from tests.wait import SECONDS, eventually

HOST = "gpu7"
KEYS = Keys(["k:" + "k" * 32])
OURS = {INSTALLATION_LABEL: "gateway-test", HOST_LABEL: HOST}


def of_session(session: str) -> dict[str, str]:
    """Return the labels of a container of this session."""
    return {**OURS, "gpuplatform.session": session, "gpuplatform.attempt": "1"}


@contextmanager
def session_container() -> Iterator[Container]:
    """A container of a session on this host."""
    session = secrets.token_hex(8)
    image = ensure_tiny_image()
    with running_container(image, name=container_name(session, 1), labels=of_session(session)) as running:
        yield running


@asynccontextmanager
async def running_gateway(engine_url: str = ENGINE_URL, port: int = 0) -> AsyncIterator[tuple[str, EngineGateway]]:
    """A gateway in this process, and its URL."""
    gateway = EngineGateway(Engine(engine_url), KEYS, HOST, OURS)
    server = await asyncio.start_server(gateway.serve, "127.0.0.1", port, limit=HEAD_LIMIT)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", gateway
        server.close()
        await gateway.close()


async def settled(gateway: EngineGateway) -> None:
    """Wait until the gateway has no connection any more."""
    await eventually(lambda: gateway.connections == 0)


async def raw(url: str, request: bytes) -> bytes:
    """Return all that the gateway answers to these bytes."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    async with asyncio.timeout(SECONDS):
        with suppress(ConnectionError):  # it may have heard enough before we have said all
            writer.write(request)
            await writer.drain()
        answer = b""
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                answer += data
    writer.close()
    return answer


def written(
    method: str, path: str, body: object = None, *, headers: Mapping[str, str] | None = None, sign: Any = None
) -> bytes:
    """Return a request; its pass is right unless `headers` or `sign` say otherwise."""
    content = b"" if body is None else json.dumps(body).encode()
    signed = (sign or signer(KEYS, HOST))(method, path, content)
    lines = {"Host": "engine", "Content-Length": str(len(content)), **signed, **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {GATEWAY_PREFIX}{path} HTTP/1.1\r\n{head}\r\n".encode() + content
