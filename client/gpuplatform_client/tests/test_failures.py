"""What becomes of requests to servers that are no platform, and of transfers that break again and again."""

import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from tenacity import RetryCallState, Retrying

from gpuplatform_client import AsyncClient, Client, transfers
from gpuplatform_client.errors import ApiError, ClientError, UnreachableServerError
from gpuplatform_client.http.retries import StopAfterSeconds, is_transient
from gpuplatform_client.tests.test_clients import BlockingClient
from gpuplatform_client.transfers import UploadState

pytestmark = pytest.mark.loopback
CLIENTS = pytest.mark.parametrize("client_class", [Client, BlockingClient])
WHOLE, PART_BYTES = b"0123456789" * 3, 10

Responder = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def responding(respond: Responder) -> Iterator[str]:
    """Yield the address of a server that responds so to every request."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            respond(self)

        do_POST = do_PATCH = do_PUT = do_DELETE = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _redirect(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(301)
    handler.send_header("Location", f"https://gpu.example.org{handler.path}")
    handler.end_headers()


def _show_page(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "text/html")
    handler.end_headers()
    handler.wfile.write(b"<html></html>")


def _send_part(handler: BaseHTTPRequestHandler) -> None:
    """Send the next part of the file and break the connection."""
    begin = int((handler.headers["Range"] or "bytes=0-").removeprefix("bytes=").removesuffix("-"))
    handler.send_response(206 if begin else 200)
    handler.send_header("ETag", '"1"')
    handler.send_header("Content-Length", str(len(WHOLE) - begin))
    handler.end_headers()
    handler.wfile.write(WHOLE[begin : begin + PART_BYTES])


@CLIENTS
def test_a_redirect_is_named_and_nothing_taken_from_it(client_class: type[Client], tmp_path: Path) -> None:
    with responding(_redirect) as url, client_class(url) as client:
        with pytest.raises(ApiError, match=r"redirects to https://gpu\.example\.org/api/v1/me/, which is not followed"):
            client.account()
        with pytest.raises(ApiError, match="redirects to"):
            client.download("folder", "path", tmp_path / "target")
        assert not list(tmp_path.iterdir())


@CLIENTS
def test_a_page_is_no_response_of_the_api(client_class: type[Client]) -> None:
    with responding(_show_page) as url, client_class(url) as client:
        for ask in (client.account, lambda: list(client.sessions()), lambda: list(client.watch("a" * 16))):
            with pytest.raises(UnreachableServerError, match="no response of the platform's API"):
                ask()


@CLIENTS
def test_a_download_goes_on_as_long_as_it_advances(client_class: type[Client], tmp_path: Path) -> None:
    with responding(_send_part) as url, client_class(url, retry_seconds=0.0) as client:
        client.download("folder", "path", tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == WHOLE


def test_the_time_of_retries_begins_with_the_first_failure() -> None:
    state = RetryCallState(Retrying(), None, (), {})
    state.start_time, state.upcoming_sleep = 0.0, 1.0
    stop = StopAfterSeconds(60.0)
    for at, expected in ((600.0, False), (659.0, False), (660.0, True)):
        state.outcome_timestamp = at
        assert stop(state) is expected


def test_a_piece_has_what_was_announced_and_no_more() -> None:
    file = io.BytesIO(b"01234567")
    assert transfers.append(UploadState("uploads/1/", length=4, offset=2), file).content == b"23"
    with pytest.raises(ClientError, match="become shorter"):
        transfers.append(UploadState("uploads/1/", length=16, offset=8), file)


def test_what_cannot_be_sent_is_not_repeated() -> None:
    with Client("gpu.example.org", "token") as client, pytest.raises(UnreachableServerError) as failure:
        client.account()
    assert failure.value.__cause__
    assert not is_transient(failure.value.__cause__)


@CLIENTS
def test_a_token_of_a_file_is_sent_without_its_newline(client_class: type[Client]) -> None:
    tokens: list[str | None] = []

    def respond(handler: BaseHTTPRequestHandler) -> None:
        tokens.append(handler.headers["Authorization"])
        _redirect(handler)

    with responding(respond) as url, client_class(url, "secret\n") as client, pytest.raises(ApiError):
        client.account()
    assert tokens == ["Token secret"]


@pytest.mark.parametrize("client_class", [Client, AsyncClient])
def test_what_is_no_token_is_not_shown(client_class: type[Client]) -> None:
    with pytest.raises(ClientError) as refused:
        client_class("http://127.0.0.1", "a-secret\nof-lines")
    assert "secret" not in str(refused.value)


@CLIENTS
def test_a_comment_within_a_stream_is_no_event(client_class: type[Client]) -> None:
    fields = (
        *(("id", "a" * 16), ("name", "train"), ("owner", "user@example.org"), ("status", "RUNNING"), ("cpu", 1)),
        *(("image", "team/torch:1"), ("resource_group", "lab"), ("memory", 1), ("created_at", "2026-01-01T00:00:00Z")),
    )
    session = json.dumps(dict(fields)).encode()

    def respond(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.end_headers()
        handler.wfile.write(
            b'id: 1\nevent: status\ndata: {"session": %s}\n\n:\n\nevent: end\ndata: %s\n\n' % (session, session)
        )

    with responding(respond) as url, client_class(url, "token") as client:
        assert [each.name for each in client.watch("a" * 16)] == ["train", "train"]
