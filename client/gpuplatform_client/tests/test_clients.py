"""Both clients against a live server: what they send, what they return, and connections that break."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from django.conf import global_settings as default_settings
from django.conf import settings
from django.test import override_settings

from accounts.models import ApiToken, User
from folders.models import Folder
from folders.sharing import folders as services
from folders.storage import paths as storage
from gpuplatform_client import AsyncClient, Client, transfers
from gpuplatform_client.errors import ApiError, MissingObjectError, SignInRequiredError, UnreachableServerError
from gpuplatform_client.models.arrays import ArraySpec
from gpuplatform_client.models.platform import LaunchSpec
from resources.amounts.units import GIB
from tests.factories import PASSWORD, make_group, make_host, make_image, make_root, make_user
from tests.live import LiveServer
from tests.ports import free_port
from tests.relay import relaying

pytestmark = [pytest.mark.loopback, pytest.mark.django_db(transaction=True)]

LAUNCH = LaunchSpec(image="team/tool:1", cpu=1, memory="1g", fgpu=Decimal("0.5"), env={"SEED": "1"})


class BlockingClient:
    """An AsyncClient with the methods of Client, so that the same test takes both."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._client = AsyncClient(*args, **options)

    def __enter__(self) -> "BlockingClient":
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.run_until_complete(self._client.close())
        self._loop.close()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            result = getattr(self._client, name)(*args, **options)
            if isinstance(result, AsyncIterator):
                return iter(self._loop.run_until_complete(_listed(result)))
            return self._loop.run_until_complete(result)

        return call


async def _listed(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


CLIENTS = pytest.mark.parametrize("client_class", [Client, BlockingClient])


@pytest.fixture
def user(transactional_db: None) -> User:
    make_host(group=make_group(name="lab"), gpus=1)
    make_image(reference="team/tool:1")
    with override_settings(PASSWORD_HASHERS=default_settings.PASSWORD_HASHERS):  # as the server has them
        return make_user(email="user@example.org")


def token_of(user: User) -> str:
    return ApiToken.objects.issue(user)[1]


def folder_of(user: User, path: Path) -> Folder:
    """Return a folder with a directory, on storage at `path` that the server's machine has."""
    root = make_root(make_host(name=settings.COMPUTE_HOST_NAME), path=str(path), is_default=True)
    storage.prepare_root(root)
    return services.create(user, "numbers", root)


@CLIENTS
def test_session_is_launched_listed_and_ended(client_class: type[Client], server: LiveServer, user: User) -> None:
    with client_class(server.url) as client:
        client.login(user.email, PASSWORD)
        assert client.account().email == user.email
        assert [image.reference for image in client.images()] == ["team/tool:1"]
        assert client.estimate(LAUNCH).starts == "now"
        launched = client.launch(LAUNCH.model_copy(update={"count": 3}))
        assert [(session.status, session.memory, session.fgpu) for session in launched] == [
            ("PENDING", GIB, Decimal("0.5"))
        ] * 3
        assert [each.id for each in client.sessions(page_size="1")] == [each.id for each in reversed(launched)]
        assert client.logs(launched[0].id) == ""
        assert client.terminate(launched[0].id).is_final
        assert client.session(launched[0].id).status == "CANCELLED"
        assert client.usage(launched[1].id).points == ()
        client.logout()
        with pytest.raises(SignInRequiredError):
            client.account()


@CLIENTS
def test_an_array_is_submitted_cancelled_and_retried(
    client_class: type[Client], server: LiveServer, user: User
) -> None:
    spec = ArraySpec(**LAUNCH.model_dump(exclude_none=True), command="train", tasks={"grid": {"lr": [0.1, 0.01]}})
    with client_class(server.url, token_of(user)) as client:
        array = client.submit_array(spec)
        assert (array.state, array.size, array.counts.waiting, array.is_over) == ("ACTIVE", 2, 2, False)
        assert [each.id for each in client.arrays(ended="false")] == [array.id]
        assert client.change_array(array.id, max_parallel=1).max_parallel == 1
        assert client.hold_array(array.id).state == "HELD"
        assert client.release_array(array.id).state == "ACTIVE"
        assert client.cancel_array(array.id, "1").counts.cancelled == 1
        assert [task.parameters for task in client.array_tasks(array.id, state="CANCELLED")] == [{"lr": 0.01}]
        assert client.retry_array(array.id, "1").counts.cancelled == 0
        assert client.array_task_logs(array.id, client.array_task(array.id, 0).index) == ""
        assert client.cancel_array(array.id).is_over
        assert client.array(array.id).state == "CANCELLED"


@CLIENTS
def test_refusals_name_the_field(client_class: type[Client], server: LiveServer, user: User) -> None:
    with client_class(server.url, token_of(user)) as client:
        with pytest.raises(ApiError) as refused:
            client.launch(LAUNCH.model_copy(update={"cpu": 0, "memory": "much"}))
        assert (refused.value.status, sorted(refused.value.errors)) == (400, ["cpu", "memory"])
        assert f"cpu: {refused.value.errors['cpu'][0]}" in str(refused.value)
        with pytest.raises(MissingObjectError):
            client.session("a" * 16)


@CLIENTS
def test_transfers_go_on_after_a_broken_connection(
    client_class: type[Client], server: LiveServer, user: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(user, tmp_path / "root")
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(os.urandom(3 * 2**20))
    monkeypatch.setattr(transfers, "PIECE_BYTES", 2**20)
    with relaying(server.port) as relay, client_class(relay.url, token_of(user)) as client:
        begin, append = transfers.PartialDownload.begin, transfers.append
        monkeypatch.setattr(transfers, "append", _first(relay.cut, append, 2))
        client.upload(folder.pk, source, "data/numbers")
        monkeypatch.setattr(transfers.PartialDownload, "begin", _first(relay.cut, begin, 1))
        client.download(folder.pk, "data/numbers", target)
        assert [(each.name, each.length_bytes) for each in client.entries(folder.pk, "data")] == [
            ("numbers", 3 * 2**20)
        ]
    assert target.read_bytes() == source.read_bytes()
    assert sorted(path.name for path in tmp_path.glob("*target*")) == ["target"]


def _first(happening: Callable[[], None], function: Callable[..., Any], nth: int) -> Callable[..., Any]:
    """Return `function`, with `happening` before its `nth` call."""
    calls: list[int] = []

    def called(*args: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == nth:
            happening()
        return function(*args, **options)

    return called


class UnreliableHandler(BaseHTTPRequestHandler):
    """Closes the first connection after it has read the request; responds with a list of no sessions to the others."""

    keys: list[str | None] = []

    def do_POST(self) -> None:
        """Record the idempotency key."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.keys.append(self.headers["Idempotency-Key"])
        if len(self.keys) == 1:
            self.close_connection = True
            return
        self.send_response(201)
        self.end_headers()
        self.wfile.write(b"[]")

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@CLIENTS
def test_repeated_launch_has_the_same_key(client_class: type[Client]) -> None:
    UnreliableHandler.keys = []
    unreliable = ThreadingHTTPServer(("127.0.0.1", 0), UnreliableHandler)
    Thread(target=unreliable.serve_forever, daemon=True).start()
    try:
        with client_class(f"http://127.0.0.1:{unreliable.server_port}") as client:
            assert client.launch(LAUNCH) == []
    finally:
        unreliable.shutdown()
        unreliable.server_close()
    first, second = UnreliableHandler.keys
    assert first
    assert first == second


@CLIENTS
def test_unreachable_server_is_given_up(client_class: type[Client]) -> None:
    client = client_class(f"http://127.0.0.1:{free_port()}", retry_seconds=0.0)
    with client, pytest.raises(UnreachableServerError, match=r"127\.0\.0\.1 cannot be reached"):
        client.account()
