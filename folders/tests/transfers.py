"""A client of the API of transfers, and the folder that it fills."""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import requests
from django.urls import reverse

from accounts.models import ApiToken, User
from folders.models import Folder
from folders.storage import paths as storage
from tests.factories import make_folder, make_root, make_user, owner_of
from tests.live import LiveServer
from tests.wait import SECONDS

TUS = {"Tus-Resumable": "1.0.0"}
BODY = {"Content-Type": "application/offset+octet-stream"}


def folder_on_disk(tmp_path: Path, owner: User | None = None, **fields: Any) -> Folder:
    """Return a folder whose root lies on this machine."""
    root = make_root(path=str(tmp_path / "root"))
    storage.prepare_root(root)
    folder = make_folder(owner or make_user(), root=root, **fields)
    storage.ensure_directory(folder)
    return folder


def files_dir(folder: Folder) -> Path:
    """Return the directory of the folder's files."""
    return Path(storage.root_directory(folder.root).files_path(folder.holder_number, folder.pk))


def uploads_dir(folder: Folder) -> Path:
    """Return the directory of its partial files."""
    return files_dir(folder).parent / "uploads"


def metadata(path: str, conflict: str = "") -> str:
    """Return the header Upload-Metadata."""
    values = {"path": path, "conflict": conflict} if conflict else {"path": path}
    return ",".join(f"{name} {base64.b64encode(value.encode()).decode()}" for name, value in values.items())


class TransferClient:
    """Requests of one user for one folder, with an API token."""

    def __init__(self, server: LiveServer, folder: Folder, user: User | None = None) -> None:
        self._server = server
        self._folder = folder
        _, token = ApiToken.objects.issue(user or owner_of(folder))
        self.headers = {"Authorization": f"Token {token}"}

    def begin(self, path: str, length: int, conflict: str = "", **options: Any) -> requests.Response:
        """Begin an upload."""
        headers = {"Upload-Length": str(length), "Upload-Metadata": metadata(path, conflict)}
        return self.tus("POST", reverse("folder-uploads", args=[self._folder.pk]), headers, **options)

    def begun(self, path: str, length: int, conflict: str = "") -> str:
        """Begin an upload and return its address."""
        answer = self.begin(path, length, conflict)
        assert answer.status_code == 201, answer.text
        return answer.headers["Location"]

    def offset(self, upload: str) -> int:
        """Return how much is there."""
        answer = self.tus("HEAD", upload)
        assert answer.status_code == 200, answer.status_code
        return int(answer.headers["Upload-Offset"])

    def patch(self, upload: str, offset: int, data: Any, headers: Mapping[str, str] | None = None) -> requests.Response:
        """Continue an upload."""
        return self.tus("PATCH", upload, {"Upload-Offset": str(offset), **BODY, **(headers or {})}, data=data)

    def tus(
        self, method: str, address: str, headers: Mapping[str, str] | None = None, **options: Any
    ) -> requests.Response:
        """Send a request of tus."""
        return self.ask(method, address, headers={**TUS, **(headers or {})}, **options)

    def download(
        self, path: str, method: str = "GET", *, inline: bool = False, stream: bool = False, **headers: str
    ) -> requests.Response:
        """Download a file."""
        params = {"path": path} | ({"inline": "1"} if inline else {})
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.ask(
            method, reverse("folder-download", args=[self._folder.pk]), headers=named, params=params, stream=stream
        )

    def ask(
        self, method: str, address: str, headers: Mapping[str, str] | None = None, **options: Any
    ) -> requests.Response:
        """Send a request."""
        url = f"{self._server.url}{address}"
        return requests.request(method, url, headers={**self.headers, **(headers or {})}, timeout=SECONDS, **options)
