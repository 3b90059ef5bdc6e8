"""What meets rows of the database: log-ins over SSH, SFTP, lists of open pages, tables of users, spec files, hosts.

Each input is tried in a savepoint that is rolled back.
"""

import asyncio
import json
import os
import struct
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from functools import cache, partial
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import asyncssh
import asyncssh.logging
from asyncssh.saslprep import SASLPrepError, saslprep
from asyncssh.sftp import SFTPServerHandler
from django.db import Error, connection, transaction
from django.test import Client
from django.urls import NoReverseMatch, reverse

from accounts.credentials.public_keys import public_key_from
from accounts.credentials.ssh_keys import add_ssh_key
from accounts.models import SshKey, User
from endpoints.handoff.views import share_cookie
from folders.models import Folder
from folders.sharing import folders
from folders.storage import paths
from pages.session_list.live.consumers import _view_of
from resources.user_import.services import UserImportError, carry_out
from sessions.access import app_addresses
from sessions.models import Session
from specs import services as specs
from specs.formats.reading import read
from specs.problems import SpecError
from sshserver.access import AccessRefusal, authenticate
from sshserver.data_folders import DataFolders
from sshserver.sftp_server import SFTP_VERSION, DataSftpServer
from tests.factories import (
    make_endpoint,
    make_group,
    make_host,
    make_image,
    make_root,
    make_session,
    make_user,
    run_session,
)

KEY: Final = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
SECRET: Final = "outside"
ACCESS: Final = Path(__file__).resolve().parents[2] / "access_matrix.txt"
PARAMETERS: Final = (  # of pages, as `request.GET` names them, and those of the hand-over to apps
    *("h", "s", "next", "at", "page", "q", "path", "tab", "sort", "replica", "port", "host", "group", "digest", "with"),
    *("template", "state", "session", "replicas", "open", "old", "new", "name", "model", "lines", "folder"),
    *("deployment", "as", "ids", "owner", "image", "project", "status", "kind", "since", "until", "columns", "days"),
)
_world: dict[str, Any] = {}


@contextmanager
def prepared() -> Iterator[None]:
    """Provide the rows and the folder that all inputs meet; nothing is committed."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place, transaction.atomic():
        user = make_user()
        add_ssh_key(user, KEY, "laptop")
        host = make_host(group=make_group(name="group"))
        root = make_root(path=str(Path(place, "root")))
        paths.prepare_root(root)
        folder = folders.create_row(user, "runs", root)
        folders.make_directory(folder)
        Path(place, SECRET).write_text(SECRET)
        _world.update(user=user, host=host, folder=folder, place=Path(place), image=make_image(), other=make_session())
        _world["running"] = run_session(owner=user, host=host)
        _world["endpoint"] = make_endpoint()
        yield
        transaction.set_rollback(True)


@contextmanager
def _rolled_back() -> Iterator[None]:
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def ssh_login(data: bytes) -> None:
    """Whatever name a client logs in with, it reaches a session of its user's, their folders, or is told why not."""
    try:
        name = saslprep(data.decode(errors="replace"))  # as the library takes names
    except SASLPrepError:
        return
    key = public_key_from(KEY)
    with _rolled_back():
        found = authenticate(name, key)
        assert found is not None
        if isinstance(found, AccessRefusal):
            found.message.encode()
        else:
            assert found.user_id == _world["user"].pk
    stranger = public_key_from(asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode())
    with _rolled_back():
        assert authenticate(name, stranger) is None


def open_list(data: bytes) -> None:
    """Whatever an open list says that it shows, its user sees rows of their own."""
    try:
        watch = json.loads(data)
    except (ValueError, RecursionError):
        watch = {"tab": data.decode(errors="replace"), "ids": [data.decode(errors="replace")]}
    if isinstance(watch, dict):
        with _rolled_back():
            view, _version = _view_of(_world["user"], watch)
        assert _world["other"].pk not in view.session_ids


def user_import(data: bytes) -> None:
    """A table of users is imported whole, or refused by its own error."""
    with _rolled_back(), suppress(UserImportError):
        done = carry_out(data.decode(errors="replace"), actor=_world["user"])
        assert not done.error_count
        assert User.objects.filter(email__in=[row.email for row in done.rows]).count() == len(done.rows)


def spec_file(data: bytes) -> None:
    """A spec file of any format is tried out, or refused by SpecError with the line of each problem."""
    text = data.decode(errors="replace")
    before = Session.objects.count()
    with _rolled_back():
        try:
            file = read(_world["user"], text)
            specs.carry_out(_world["user"], file.documents, is_dry=True)
        except SpecError as error:
            problems = error.problems
        else:
            problems = []
    assert all(each.line > 0 and each.message for each in problems)
    assert Session.objects.count() == before


def host_functions(data: bytes) -> None:
    """What a host gives to the functions that it may call changes rows of its own alone, or is an error of data."""
    parts = [*data.decode(errors="replace").split("\n"), "", "", ""]
    number = int.from_bytes(data[:9], "big", signed=True)
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("SELECT resources_complete_image(%s, %s, %s)", (_world["image"].pk, parts[0], number)),
        ("SELECT resources_complete_image(%s, %s, %s)", (number, parts[1], number)),
        ("SELECT folders_forget_folder(%s)", (parts[0],)),
        ("SELECT compute_finish_resize(%s, %s, %s)", (parts[0], parts[1], bool(number % 2))),
        ("SELECT compute_finish_resize(%s, %s, %s)", (_world["running"].pk, parts[1], True)),
    ]
    for statement, arguments in calls:
        with suppress(Error, UnicodeError), _rolled_back():
            with connection.cursor() as cursor:
                cursor.execute(statement, arguments)
            assert Folder.objects.filter(pk=_world["folder"].pk).exists()
            assert SshKey.objects.count() == 1


@cache
def _pages() -> list[str]:
    """Return the addresses of what a user may get that have no part to fill in, but for the API, which has a schema."""
    rows = [line.split() for line in ACCESS.read_text().splitlines() if line.startswith("GET ")]
    found = []
    for _verb, name, _stranger, user, *_others in rows:
        with suppress(NoReverseMatch):
            if user in ("200", "302", "400", "404") and not (path := reverse(name)).startswith("/api/v1/"):
                found.append(path)
    return sorted(found)


def page_parameters(data: bytes) -> None:
    """Whatever an address has behind its question mark, its page is shown, or refused with a status below 500."""
    if not data:
        return
    pages = _pages()
    path = pages[data[0] % len(pages)]
    values = data[1:].split(b"\n")
    query = {name: values[at % len(values)] for at, name in enumerate(PARAMETERS)}
    client = Client()
    with _rolled_back():
        client.force_login(_world["user"])
        client.cookies[share_cookie()] = values[0].decode("latin-1")
        response = client.get(path, query_params=query)
    assert response.status_code < 500
    if response.status_code == HTTPStatus.SEE_OTHER:
        assert response["Location"].startswith(app_addresses.origin(_world["endpoint"]))


class _AtOnce(Executor):
    """Runs what it is given at once, so that all is in one transaction."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> "Future[Any]":
        """Return the future of what has run."""
        done: Future[Any] = Future()
        try:
            done.set_result(function(*arguments, **options))
        except BaseException as error:
            done.set_exception(error)
        return done


async def _serve(data: bytes) -> tuple[list[str], bytes]:
    """Answer the packets of a client that then leaves; return what its user was shown, and the answers."""
    reader: Any = asyncio.StreamReader()
    reader.logger, reader.get_extra_info = asyncssh.logging.logger, lambda *_: ""
    reader.feed_data(struct.pack(">IBI", 5, 1, SFTP_VERSION) + data)
    reader.feed_eof()
    channel: Any = SimpleNamespace(is_closing=lambda: False, logger=reader.logger, get_connection=lambda: None)
    shown: list[str] = []
    answers: list[bytes] = []
    writer: Any = SimpleNamespace(channel=channel, write=answers.append, close=lambda: None)
    server = DataSftpServer(channel, DataFolders(_world["user"].pk), _AtOnce(), shown.append, partial(asyncio.sleep, 0))
    await SFTPServerHandler(server, reader, writer, SFTP_VERSION).run()
    await server.end()
    return shown, b"".join(answers)


def sftp_server(data: bytes) -> None:
    """Whatever packets a client sends, they reach its user's folders alone, and none ends in an error that is ours."""
    with (
        patch.dict(os.environ, DJANGO_ALLOW_ASYNC_UNSAFE="true"),
        patch("sshserver.sftp_server.close_old_connections"),
        _rolled_back(),
    ):
        shown, answers = asyncio.run(_serve(data))
    assert all(each.isprintable() for each in shown)
    assert b"Uncaught exception" not in answers
    assert sorted(os.listdir(_world["place"])) == [SECRET, "root"]
    assert Path(_world["place"], SECRET).read_text() == SECRET
