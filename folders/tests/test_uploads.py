"""Uploads by tus, through the web process as it runs."""

import base64
import errno
import hashlib
import os
import socket
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from asgiref.sync import sync_to_async
from django.db import connections
from django.utils import timezone

from accounts.models import ResourcePolicy
from folders import sweeps
from folders.errors import StorageQuotaError
from folders.files import partial as partials
from folders.files.partial import PartialFile
from folders.models import Folder, FolderShare, OnConflict, Upload
from folders.quotas import rules as quota
from folders.storage.paths import files_of
from folders.tests.transfers import BODY, TUS, TransferClient, files_dir, folder_on_disk, metadata, uploads_dir
from folders.transfers.incoming import UploadBody
from folders.uploads import services as uploads
from proxy.http.asgi import Message
from tests.factories import make_user, owner_of
from tests.live import LiveServer, login_cookie
from tests.wait import SECONDS, until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.loopback]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A folder on this machine."""
    return folder_on_disk(tmp_path)


@pytest.fixture
def client_(server: LiveServer, folder: Folder) -> TransferClient:
    """Its owner's client."""
    return TransferClient(server, folder)


def test_file_appears_once_it_is_whole(client_: TransferClient, folder: Folder) -> None:
    data = os.urandom(3_000_000)
    upload = client_.begun("a/b/größe\u00a0.bin", len(data))
    assert client_.offset(upload) == 0
    first = client_.patch(upload, 0, data[:2_000_000])
    assert (first.status_code, first.headers["Upload-Offset"]) == (204, "2000000")
    assert not list(files_dir(folder).iterdir())
    last = client_.patch(upload, 2_000_000, data[2_000_000:])
    assert (last.status_code, last.headers["Upload-Offset"]) == (204, "3000000")
    assert last.headers["Upload-Path"] == "a/b/gr%C3%B6%C3%9Fe%C2%A0.bin"
    file = files_dir(folder) / "a/b/größe\u00a0.bin"
    assert file.read_bytes() == data
    status = file.stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (1000, 1000, 0o644)
    assert not list(uploads_dir(folder).iterdir())
    assert client_.offset(upload) == 3_000_000  # for a client that missed the response
    assert client_.patch(upload, 3_000_000, b"").status_code == 204
    folder.refresh_from_db()
    assert (folder.used_bytes, folder.used_files) == (3_000_000, 1)


def test_first_request_may_carry_the_whole_file(client_: TransferClient, folder: Folder) -> None:
    answer = client_.begin("small.txt", 5, data=b"hello")
    assert (answer.status_code, answer.headers["Upload-Offset"]) == (201, "5")
    assert client_.begin("empty.txt", 0).status_code == 201
    assert (files_dir(folder) / "small.txt").read_bytes() == b"hello"
    assert (files_dir(folder) / "empty.txt").read_bytes() == b""


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"Upload-Offset": "7"}, 409),
        ({"Upload-Offset": "-1"}, 400),
        ({"Upload-Offset": "x"}, 400),
        ({"Content-Type": "text/plain"}, 415),
        ({"Tus-Resumable": "0.2.2"}, 412),
        ({"Upload-Checksum": "md4 AAAA"}, 400),
        ({"Upload-Checksum": f"sha256 {base64.b64encode(bytes(32)).decode()}"}, 460),
    ],
)
def test_wrong_request_changes_nothing(client_: TransferClient, change: dict[str, str], status: int) -> None:
    upload = client_.begun("a", 10)
    assert client_.patch(upload, 0, b"12345").status_code == 204
    answer = client_.patch(upload, 5, b"678", change)
    assert answer.status_code == status, answer.text
    assert answer.headers["Tus-Resumable"] == "1.0.0"
    assert client_.offset(upload) == 5


def test_body_beyond_the_length_is_refused(client_: TransferClient, folder: Folder) -> None:
    upload = client_.begun("a", 10)
    assert client_.patch(upload, 0, b"x" * 11).status_code == 400
    assert client_.offset(upload) == 0
    assert client_.patch(upload, 0, iter([b"12345", b"67890"])).status_code == 204  # in chunks, of no known length
    assert (files_dir(folder) / "a").read_bytes() == b"1234567890"


def test_checksum_that_matches_is_accepted(client_: TransferClient) -> None:
    upload = client_.begun("a", 4)
    for offset, data in ((0, b"ab"), (2, b"cd")):
        digest = base64.b64encode(hashlib.sha1(data).digest()).decode()
        assert client_.patch(upload, offset, data, {"Upload-Checksum": f"sha1 {digest}"}).status_code == 204


@pytest.mark.parametrize(
    ("length", "header", "field"),
    [
        ("x", metadata("a"), "Upload-Length"),
        ("", metadata("a"), "Upload-Length"),
        (str(2**63), metadata("a"), "Upload-Length"),
        ("1", "", "path"),
        ("1", "path !", "Upload-Metadata"),
        ("1", f"path {base64.b64encode(b'%s' % bytes([255])).decode()}", "Upload-Metadata"),
        ("1", metadata("../a"), "path"),
        ("1", metadata("/etc/passwd"), "path"),
        ("1", metadata("a/"), "path"),
        ("1", metadata("a\0"), "path"),
        ("1", metadata("a\nb"), "path"),
        ("1", metadata("x" * 256), "path"),
        ("1", metadata("a", "overwrite"), "conflict"),
    ],
)
def test_upload_that_cannot_be_is_refused(
    client_: TransferClient, folder: Folder, length: str, header: str, field: str
) -> None:
    headers = {"Upload-Length": length, "Upload-Metadata": header}
    answer = client_.tus("POST", f"/api/v1/folders/{folder.pk}/uploads/", headers)
    assert answer.status_code == 400
    assert list(answer.json()["errors"]) == [field]
    assert not Upload.objects.exists()


def test_taken_path_is_refused_replaced_or_kept_beside(client_: TransferClient, folder: Folder) -> None:
    files = files_dir(folder)
    (files / "a.txt").write_text("old")
    (files / "directory").mkdir()
    assert client_.begin("a.txt", 3, data=b"new").status_code == 409
    assert client_.begin("a.txt/b", 3, data=b"new").status_code == 409
    for conflict in ("refuse", "replace"):
        assert client_.begin("directory", 3, conflict, data=b"new").status_code == 409
    beside = client_.begin("a.txt", 3, "keep-both", data=b"new")
    assert beside.headers["Upload-Path"] == "a%20%281%29.txt"
    assert ((files / "a.txt").read_text(), (files / "a (1).txt").read_text()) == ("old", "new")
    assert client_.begin("a.txt", 3, "replace", data=b"new").status_code == 201
    assert (files / "a.txt").read_text() == "new"


def test_path_taken_meanwhile_is_refused_at_the_end(client_: TransferClient, folder: Folder) -> None:
    upload = client_.begun("a", 3)
    (files_dir(folder) / "a").write_text("old")
    assert client_.patch(upload, 0, b"new").status_code == 409
    assert (files_dir(folder) / "a").read_text() == "old"
    assert client_.tus("HEAD", upload).status_code == 409
    (files_dir(folder) / "a").unlink()
    assert client_.offset(upload) == 3  # finished now
    assert (files_dir(folder) / "a").read_text() == "new"


@pytest.mark.parametrize("link", ["directory", "file"])
def test_symbolic_links_in_the_way_lead_nowhere(
    client_: TransferClient, folder: Folder, tmp_path: Path, link: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("secret")
    upload = client_.begun("link/file" if link == "directory" else "link", 3, "replace")
    (files_dir(folder) / "link").symlink_to(outside if link == "directory" else outside / "file")
    answer = client_.patch(upload, 0, b"new")
    assert answer.status_code == (409 if link == "directory" else 204)
    assert (outside / "file").read_text() == "secret"


def test_second_writer_is_locked_out(client_: TransferClient, folder: Folder, server: LiveServer) -> None:
    data = os.urandom(3_000_000)
    upload = client_.begun("a", len(data))
    with raw_patch(client_, server, upload, len(data)) as held:
        held.sendall(data[:2_500_000])
        until(lambda: client_.offset(upload))
        assert client_.patch(upload, 0, b"x").status_code == 423
        assert client_.tus("DELETE", upload).status_code == 423
    until(lambda: client_.offset(upload) == 2_500_000)  # what was sent until the end is kept
    until(lambda: client_.patch(upload, 2_500_000, data[2_500_000:]).status_code == 204)
    assert (files_dir(folder) / "a").read_bytes() == data


def raw_patch(client_: TransferClient, server: LiveServer, upload: str, length: int) -> socket.socket:
    """Return a connection over which a PATCH of this length has begun, from the start of the file."""
    connection = socket.create_connection(("127.0.0.1", server.port), SECONDS)
    headers = {**client_.headers, **TUS, **BODY, "Host": urlsplit(server.url).netloc}
    headers |= {"Upload-Offset": "0", "Content-Length": str(length)}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    connection.sendall(f"PATCH {upload} HTTP/1.1\r\n{head}\r\n".encode())
    return connection


def test_share_withdrawn_meanwhile_refuses_the_file(server: LiveServer, folder: Folder) -> None:
    share = FolderShare.objects.create(folder=folder, user=make_user(), is_read_only=False)
    writer = TransferClient(server, folder, share.user)
    data = os.urandom(3_000_000)
    upload = writer.begun("a", len(data))
    with raw_patch(writer, server, upload, len(data)) as held:
        held.sendall(data[:2_500_000])
        until(lambda: writer.offset(upload))
        share.delete()
        held.sendall(data[2_500_000:])
        assert held.recv(1000).startswith(b"HTTP/1.1 403 ")
    assert not (files_dir(folder) / "a").exists()


def test_quota_is_reserved_by_one_upload_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = ResourcePolicy.objects.create(name="small", storage_bytes=100)
    folder = folder_on_disk(tmp_path, make_user(policy=policy))
    both_checked, check_room = Barrier(2, timeout=0.5), quota.check_room

    def check_and_meet(*arguments: Any, **amounts: Any) -> None:
        check_room(*arguments, **amounts)
        with suppress(BrokenBarrierError):
            both_checked.wait()  # in vain, if one waits for the other's reservation

    monkeypatch.setattr(quota, "check_room", check_and_meet)

    def begin(number: int) -> bool:
        try:
            uploads.begin(owner_of(folder), folder, f"{number}", 60, OnConflict.REFUSE)
        except StorageQuotaError:
            return False
        finally:
            connections.close_all()
        return True

    with ThreadPoolExecutor(2) as threads:
        assert sum(threads.map(begin, range(2))) == 1


def test_uploads_under_way_are_limited(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MAX_UNDER_WAY", 1)
    uploads.begin(owner_of(folder), folder, "a", 1, OnConflict.REFUSE)
    with pytest.raises(StorageQuotaError, match="not finished"):
        uploads.begin(owner_of(folder), folder, "b", 1, OnConflict.REFUSE)


def test_upload_can_be_ended(client_: TransferClient, folder: Folder) -> None:
    upload = client_.begun("a", 10)
    client_.patch(upload, 0, b"12345")
    (listed,) = client_.ask("GET", f"/api/v1/folders/{folder.pk}/uploads/").json()["results"]
    assert (listed["path"], listed["length"], listed["received"]) == ("a", 10, 5)
    assert client_.tus("POST", upload, {"X-HTTP-Method-Override": "DELETE"}).status_code == 204
    assert client_.tus("HEAD", upload).status_code == 404
    assert not list(uploads_dir(folder).iterdir())


def test_expired_upload_is_gone(client_: TransferClient, folder: Folder) -> None:
    upload = client_.begun("a", 10)
    kept = client_.begun("b", 10)
    Upload.objects.filter(path="a").update(expires_at=timezone.now() - timedelta(seconds=1))
    assert client_.tus("HEAD", upload).status_code == 410
    sweeps.sweep(folder.root)
    assert client_.tus("HEAD", upload).status_code == 404
    assert client_.offset(kept) == 0
    assert len(list(uploads_dir(folder).iterdir())) == 1


def test_partial_file_that_is_gone_is_gone(client_: TransferClient, folder: Folder) -> None:
    upload = client_.begun("a", 10)
    for file in uploads_dir(folder).iterdir():
        file.unlink()
    assert client_.tus("HEAD", upload).status_code == 404
    assert client_.patch(upload, 0, b"x").status_code == 404
    assert client_.tus("DELETE", upload).status_code == 204


def test_strangers_and_readers_cannot_upload(client_: TransferClient, folder: Folder, server: LiveServer) -> None:
    upload = client_.begun("a", 10)
    stranger = TransferClient(server, folder, make_user())
    assert stranger.begin("b", 1).status_code == 404
    assert stranger.patch(upload, 0, b"x").status_code == 404
    reader, writer = make_user(), make_user()
    FolderShare.objects.create(folder=folder, user=reader)
    FolderShare.objects.create(folder=folder, user=writer, is_read_only=False)
    assert TransferClient(server, folder, reader).begin("b", 1).status_code == 403
    assert TransferClient(server, folder, writer).begin("b", 1, data=b"x").status_code == 201
    assert TransferClient(server, folder, writer).patch(upload, 0, b"x").status_code == 404  # another user's upload
    assert requests.post(f"{server.url}/api/v1/folders/{folder.pk}/uploads/", timeout=SECONDS).status_code == 401


def test_login_session_needs_the_csrf_token(server: LiveServer, folder: Folder) -> None:
    browser = requests.Session()
    cookie = login_cookie(owner_of(folder), server.url)
    browser.cookies.set(cookie["name"], cookie["value"])
    browser.cookies.set("gp_csrf", "c" * 32)
    address = f"{server.url}/api/v1/folders/{folder.pk}/uploads/"
    headers = TUS | BODY | {"Upload-Length": "5", "Upload-Metadata": metadata("a")}

    def post(**more: str) -> int:
        named = {name.replace("_", "-"): value for name, value in more.items()}
        return browser.post(address, b"hello", headers=headers | named, timeout=SECONDS).status_code

    assert post() == 403
    assert post(X_CSRFToken="c" * 32, Origin="http://evil.example") == 403
    assert not (files_dir(folder) / "a").exists()
    assert post(X_CSRFToken="c" * 32, Origin=server.url) == 201
    assert (files_dir(folder) / "a").read_bytes() == b"hello"


def test_quota_holds_at_creation_and_while_writing(server: LiveServer, tmp_path: Path) -> None:
    policy = ResourcePolicy.objects.create(name="small", storage_bytes=100_000_000, storage_files=3)
    folder = folder_on_disk(tmp_path, make_user(policy=policy))
    client_ = TransferClient(server, folder)
    assert client_.begin("a", 100_000_001).status_code == 413
    upload = client_.begun("a", 90_000_000)
    refused = client_.begin("b", 20_000_000)  # the upload under way counts in full
    assert refused.status_code == 413
    assert "quota" in refused.json()["detail"]
    Folder.objects.update(used_bytes=50_000_000)  # a session wrote meanwhile
    with raw_patch(client_, server, upload, 90_000_000) as held:
        held.sendall(bytes(70_000_000))
        answer = b""
        while b"quota" not in answer:  # head and content may come one after the other
            received = held.recv(10_000)
            assert received, answer
            answer += received
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert client_.patch(upload, 0, b"x").status_code == 409  # not 423: the lock was released
        held.sendall(bytes(20_000_000))  # browsers read the response only then
        while held.recv(10_000):
            pass  # the rest of the response, then the end of the connection
    assert 0 < client_.offset(upload) < 90_000_000


async def test_full_storage_refuses_and_keeps_what_is_there(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    with await sync_to_async(files_of)(folder) as files:
        os.close(files.staging.open("partial", create=True))
        partial = PartialFile(files.staging, "partial")
        write = os.write

        def write_until_full(opened: int, data: Any) -> int:
            room = 1_500_000 - os.fstat(opened).st_size
            if not room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(opened, data[:room])

        monkeypatch.setattr(partials, "os", SimpleNamespace(**vars(os) | {"write": write_until_full}))
        handler = FailingHandler()
        body = UploadBody(partial, 3_000_000, handler=handler)
        messages = [{"type": "http.request", "body": bytes(100_000), "more_body": number < 29} for number in range(30)]

        async def receive() -> Message:
            return messages.pop(0)

        outcome = await body.take(receive)
        body.close()
        assert (outcome.status, handler.has_failed) == (507, True)
        assert b"storage is full" in outcome.body
        assert files.staging.length_bytes("partial") == 1_500_000


class FailingHandler:
    """The handler of an upload that does not get to its end."""

    def __init__(self) -> None:
        self.has_failed = False

    def check(self) -> None:
        """Allow it."""

    def finish(self, partial: PartialFile) -> dict[str, str]:
        """Fail the test."""
        raise AssertionError("the file is not whole")

    def fail(self) -> None:
        """Note it."""
        self.has_failed = True


def test_options_name_the_extensions(client_: TransferClient, folder: Folder) -> None:
    answer = client_.ask("OPTIONS", f"/api/v1/folders/{folder.pk}/uploads/")
    assert answer.status_code == 204
    assert answer.headers["Tus-Version"] == "1.0.0"
    assert answer.headers["Tus-Checksum-Algorithm"] == "md5,sha1,sha256"
    assert "creation" in answer.headers["Tus-Extension"].split(",")
