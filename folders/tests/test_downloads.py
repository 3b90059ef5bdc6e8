"""Downloads of files and zip archives, through the web process as it runs."""

import io
import os
import stat
import zipfile
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pytest
import requests
from django.urls import reverse

from folders.models import Folder, FolderShare
from folders.tests.transfers import TransferClient, files_dir, folder_on_disk
from folders.transfers.handover import PATH
from tests.factories import make_user
from tests.live import LiveServer
from tests.wait import SECONDS

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.loopback]

DATA: Final = os.urandom(1_000_000)
PNG: Final = b"\x89PNG\r\n\x1a\n" + bytes(100)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A folder on this machine with a file of a megabyte."""
    made = folder_on_disk(tmp_path)
    (files_dir(made) / "data.bin").write_bytes(DATA)
    return made


@pytest.fixture
def client_(server: LiveServer, folder: Folder) -> TransferClient:
    """Its owner's client."""
    return TransferClient(server, folder)


def test_whole_file_comes_as_an_attachment(client_: TransferClient) -> None:
    answer = client_.download("data.bin")
    assert (answer.status_code, answer.content == DATA) == (200, True)
    headers = answer.headers
    assert headers["Content-Disposition"] == 'attachment; filename="data.bin"'
    assert (headers["Content-Type"], headers["X-Content-Type-Options"]) == ("application/octet-stream", "nosniff")
    assert "sandbox" in headers["Content-Security-Policy"]
    assert headers["Accept-Ranges"] == "bytes"
    head = client_.download("data.bin", "HEAD")
    assert (head.headers["Content-Length"], head.headers["ETag"]) == ("1000000", headers["ETag"])


@pytest.mark.parametrize("size", [0, 1, 300_000])
def test_file_of_any_size_is_whole(client_: TransferClient, folder: Folder, size: int) -> None:
    (files_dir(folder) / "a").write_bytes(DATA[:size])
    answer = client_.download("a")
    assert (answer.content, answer.headers["Content-Length"]) == (DATA[:size], str(size))


def test_ranges_are_parts_of_the_file(client_: TransferClient) -> None:
    part = client_.download("data.bin", Range="bytes=500000-")
    assert (part.status_code, part.content == DATA[500_000:]) == (206, True)
    assert part.headers["Content-Range"] == "bytes 500000-999999/1000000"
    assert client_.download("data.bin", Range="bytes=-10").content == DATA[-10:]
    assert client_.download("data.bin", Range="bytes=0-1,5-6").status_code == 200
    beyond = client_.download("data.bin", Range="bytes=1000000-")
    assert (beyond.status_code, beyond.headers["Content-Range"]) == (416, "bytes */1000000")


def test_conditions_are_held(client_: TransferClient, folder: Folder) -> None:
    first = client_.download("data.bin", "HEAD").headers
    assert client_.download("data.bin", If_None_Match=first["ETag"]).status_code == 304
    assert client_.download("data.bin", If_Modified_Since=first["Last-Modified"]).status_code == 304
    assert client_.download("data.bin", If_Match='"other"').status_code == 412
    for validator in (first["ETag"], first["Last-Modified"]):
        assert client_.download("data.bin", Range="bytes=0-9", If_Range=validator).status_code == 206
    os.utime(files_dir(folder) / "data.bin", (1, 1))
    for validator in (first["ETag"], first["Last-Modified"]):
        assert client_.download("data.bin", Range="bytes=0-9", If_Range=validator).status_code == 200


@pytest.mark.parametrize("name", ["größe 한글.bin", 'a"b\\c.txt', "new\nline", "semi;colon", "-rf", "a%2Fb"])
def test_name_of_the_file_is_kept(client_: TransferClient, folder: Folder, name: str) -> None:
    (files_dir(folder) / name).write_bytes(b"x")
    answer = client_.download(name)
    assert answer.content == b"x"
    disposition = answer.headers["Content-Disposition"]
    shown = name.replace("\n", "\ufffd")
    plain = shown.replace("\\", "\\\\").replace('"', '\\"')
    assert disposition in (f'attachment; filename="{plain}"', f"attachment; filename*=utf-8''{quote(shown)}")


def test_only_pictures_are_shown_inline(client_: TransferClient, folder: Folder) -> None:
    (files_dir(folder) / "a.png").write_bytes(PNG)
    (files_dir(folder) / "b.png").write_bytes(b"<script>alert(1)</script>")
    (files_dir(folder) / "c.svg").write_bytes(b"<svg xmlns='http://www.w3.org/2000/svg'/>")
    picture = client_.download("a.png", inline=True).headers
    assert (picture["Content-Type"], picture["Content-Disposition"]) == ("image/png", "inline")
    assert "sandbox" in picture["Content-Security-Policy"]
    assert client_.download("a.png").headers["Content-Disposition"].startswith("attachment")
    for name in ("b.png", "c.svg"):
        answer = client_.download(name, inline=True).headers
        assert answer["Content-Type"] == "application/octet-stream"
        assert answer["Content-Disposition"].startswith("attachment")


def test_what_is_no_file_is_refused(client_: TransferClient, folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    files = files_dir(folder)
    (files / "link").symlink_to(tmp_path / "secret")
    (files / "directory").mkdir()
    os.mkfifo(files / "pipe")
    for path, status in {"link": 409, "directory": 409, "pipe": 409, "none": 404, "../x": 400, "": 400}.items():
        assert client_.download(path).status_code == status, path


def test_strangers_find_nothing_and_readers_read(server: LiveServer, folder: Folder) -> None:
    user = make_user()
    other = TransferClient(server, folder, user)
    addresses = [reverse(f"folder-{name}", args=[folder.pk]) for name in ("download", "zip")]
    for address in addresses:
        assert other.ask("GET", address, params={"path": "data.bin"}).status_code == 404
        assert requests.get(server.url + address, timeout=SECONDS).status_code == 401
    FolderShare.objects.create(folder=folder, user=user)
    for address in addresses:
        assert other.ask("GET", address, params={"path": "data.bin"}).status_code == 200


def test_archive_has_the_selected_entries(client_: TransferClient, folder: Folder) -> None:
    files = files_dir(folder)
    (files / "a/b").mkdir(parents=True)
    (files / "a/b/run.sh").write_text("echo")
    (files / "a/b/run.sh").chmod(0o755)
    (files / "a/empty").mkdir()
    address = reverse("folder-zip", args=[folder.pk])
    paths = {"path": ["a", "data.bin"]}
    for answer in (client_.ask("GET", address, params=paths), client_.ask("POST", address, data=paths)):
        assert answer.headers["Content-Type"] == "application/zip"
        assert answer.headers["Content-Disposition"] == f'attachment; filename="{folder.name}.zip"'
        with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
            assert archive.testzip() is None
            assert sorted(archive.namelist()) == ["a/", "a/b/", "a/b/run.sh", "a/empty/", "data.bin"]
            assert archive.read("data.bin") == DATA
            assert stat.S_IMODE(archive.getinfo("a/b/run.sh").external_attr >> 16) == 0o755
    one = client_.ask("GET", address, params={"path": "a/b"})
    assert one.headers["Content-Disposition"] == 'attachment; filename="b.zip"'
    everything = client_.ask("GET", address)
    with zipfile.ZipFile(io.BytesIO(everything.content)) as archive:
        assert len(archive.namelist()) == 5
    assert client_.ask("HEAD", address).headers.get("Content-Length") is None
    assert client_.ask("GET", address, params={"path": "none"}).status_code == 404


def test_middleware_knows_the_addresses(folder: Folder) -> None:
    upload = "00000000-0000-4000-8000-000000000000"
    for name, more in {"uploads": (), "upload": (upload,), "download": (), "zip": ()}.items():
        match = PATH.search(reverse(f"folder-{name}", args=[folder.pk, *more]))
        assert match
        assert (match[1] == "uploads") == name.startswith("upload")
    assert not PATH.search(f"/api/v1/folders/{folder.pk}/entries/")
