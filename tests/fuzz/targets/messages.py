"""What browsers and programs send over websockets, and keys, packets and responses of other programs."""

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from gpuplatform_client.sync.sftp_packets import Reader, SftpBrokenError
from rest_framework.exceptions import ParseError

from accounts.credentials.public_keys import InvalidPublicKeyError, public_key_from
from deployments.scaling.prometheus import PrometheusError, number_in
from engine.frames import FrameReader, unframed
from gpuplatform.rest.parsing import ExactJSONParser
from hostworker.app_processes import scripts
from pages.log_panel.ansi import coloured
from pages.session.losses import read_losses
from sessions.following.consumers import SessionsConsumer
from sessions.terminal.command_socket import CommandConsumer
from sessions.terminal.messages import (
    MAX_SIDE,
    Ack,
    CloseCode,
    Ping,
    Resize,
    close_reason,
    message_from_text,
    text_from_pong,
)
from webhooks.destinations import InvalidUrlError, check_url, networks_of


def terminal(data: bytes) -> None:
    """A frame of a terminal is one of its messages within bounds, or refused by ValueError."""
    with suppress(ValueError):
        match message_from_text(data.decode(errors="surrogateescape")):
            case Resize(columns, rows):
                assert 1 <= min(columns, rows) <= max(columns, rows) <= MAX_SIDE
            case Ack(count):
                assert count > 0
            case Ping(number):
                text_from_pong(number)
    assert len(close_reason(data.decode(errors="replace")).encode()) <= 123


class _CommandSocket(CommandConsumer):
    """The socket of a command without its session: notes what it closes with, and what it would run."""

    def __init__(self) -> None:
        super().__init__()
        self._session = SimpleNamespace()  # type: ignore[assignment]
        self.closed: list[CloseCode] = []
        self.commands: list[str] = []

    async def _finish(self, code: CloseCode, reason: str) -> None:
        self.closed.append(code)

    async def _run(self, session: Any, command: str) -> None:
        self.commands.append(command)


def command_socket(data: bytes) -> None:
    """Whatever text a program sends, the socket carries it out or closes; what it runs, a kernel can take."""

    async def receive() -> None:
        socket = _CommandSocket()
        for line in data.split(b"\n")[:8]:
            await socket.receive(line.decode(errors="replace"))
        assert set(socket.closed) <= {CloseCode.PROTOCOL_BROKEN}
        assert not any("\0" in command for command in socket.commands)
        b"".join(command.encode() for command in socket.commands)

    asyncio.run(receive())


class _SessionsSocket(SessionsConsumer):
    """The socket of changed sessions without a browser."""

    async def base_send(self, message: dict[str, Any]) -> None:
        """Check that the message can be sent."""
        (message.get("text") or "").encode()


def changes_socket(data: bytes) -> None:
    """Whatever text a browser sends, the socket answers or closes."""
    asyncio.run(_SessionsSocket().receive(data.decode(errors="replace")))


def api_body(data: bytes) -> None:
    """A body is JSON that can be encoded again, or refused by ParseError."""
    with suppress(ParseError):
        value = ExactJSONParser().parse(SimpleNamespace(read=lambda: data))  # type: ignore[arg-type]
        repr(value).encode()


def public_key(data: bytes) -> None:
    """A pasted key is one that is read back as the same, or refused by its own error."""
    with suppress(InvalidPublicKeyError):
        key = public_key_from(data.decode(errors="surrogateescape"))
        assert public_key_from(key.text).fingerprint == key.fingerprint
        key.comment.encode()


def sftp_packet(data: bytes) -> None:
    """The fields of a server's packet are read within it, or SftpBrokenError is raised."""
    reader = Reader(data, SftpBrokenError)
    with suppress(SftpBrokenError):
        while (before := reader.rest) > 0:
            reader.text()
            reader.status()
            reader.number(">Q")
            assert 0 <= reader.rest < before


def engine_frames(data: bytes) -> None:
    """Frames of a container's output are the same however they come."""
    cut, whole = FrameReader(), FrameReader()
    pieces = [content for at in range(0, len(data), 3) for content in cut.feed(data[at : at + 3])]
    assert pieces == whole.feed(data)
    assert unframed(data).startswith(b"".join(pieces))


def prometheus(data: bytes) -> None:
    """A response of Prometheus has one number of zero or more, or is refused by its own error."""
    with suppress(PrometheusError):
        assert 0 <= number_in(data) < float("inf")


def logs(data: bytes) -> None:
    """Output of programs is shown without markup of its own, and with each tag closed."""
    html = coloured(data.decode(errors="replace"))
    assert html.count("<span class=") == html.count("</span>") == html.count("<") / 2


def app_status(data: bytes) -> None:
    """What a session says of its apps and of what runs in it is read, whatever it is."""
    text = data.decode(errors="replace")
    scripts.read_status(text, 8888).output.encode()
    assert all(0 <= port < 65536 for port in scripts.listening_ports(text))
    read_losses(text)


def webhook_url(data: bytes) -> None:
    """A webhook's address is refused by its own error, or is a public one that begins with https."""
    url = data.decode(errors="surrogateescape")
    with suppress(InvalidUrlError):
        check_url(url, networks_of(()))
        assert url.lower().startswith("https:")
        assert url.isprintable()
