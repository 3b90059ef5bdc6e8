"""People who go on working while the platform's web servers are replaced: they read pages, keep a list open and upload.

Their requests go to each of several web servers in turn, as a reverse proxy without memory passes them on.
"""

import asyncio
import base64
import html
import itertools
import json
import random
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, ClassVar, Final
from urllib.parse import urljoin, urlsplit

import requests
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from tests.steady_thread import SteadyThread
from tests.wait import SECONDS

PAUSE_SECONDS: Final = 0.1
SIGN_IN: Final = "/accounts/sign-in/"
LINK: Final = re.compile(r'(?:href|src|hx-get)="(/[^"]*)"|": "(/static/[^"]*)"')  # the latter of the import map
LEFT_OUT: Final = re.compile(r"^/(api/|ws/|metrics|accounts/|.*download|.*\.(?:whl|pyz)$)")
TOKEN: Final = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')
MAX_PAGES: Final = 40
BLOCK_BYTES: Final = 2**18


class SteadyWorker(SteadyThread):
    """Makes requests of several servers, round after round. Subclasses say what a round is."""

    def __init__(self, urls: list[str]) -> None:
        self._servers: Iterator[str] = itertools.cycle(urls)
        self.failed: list[str] = []
        self.refused = 0  # requests that got 503, or no connection, and were made again
        super().__init__()

    def run(self) -> None:
        """Make rounds until it is finished."""
        while not self.stopped.is_set():
            self.round()
            self.rounds += 1

    def round(self) -> None:
        """Work for a while."""
        raise NotImplementedError

    def _ask(self, client: requests.Session, method: str, path: str, server: str = "", **options: Any) -> Any:
        """Return the response, which is made again where a server refuses it or is away; note it where it is bad."""
        for _ in range(100):
            url = urljoin(server or next(self._servers), path)
            with suppress(requests.ConnectionError):
                response = client.request(method, url, timeout=SECONDS, **options)
                if response.status_code != 503:
                    if not response.ok:
                        self.failed.append(f"{method} {url}: {response.status_code}")
                    return response
            self.refused += 1
            self.stopped.wait(PAUSE_SECONDS)
        raise AssertionError(f"{method} {path}: refused for ever")


class Visitor(SteadyWorker):
    """Reads one page after another with all its scripts and styles, each from another server, and sends a form."""

    def __init__(self, urls: list[str], email: str, password: str) -> None:
        self._client = requests.Session()
        self._login = {"login": email, "password": password}
        self._pages: dict[str, None] = {"/": None}  # in the order in which they are found
        self._had: set[tuple[str, str]] = set()
        self._next = 0
        self._is_in = False
        self.sign_ins = 0
        self.shared_files = True  # whether any server has the static files of each other's pages
        super().__init__(urls)

    def wait_for_all_pages(self) -> None:
        """Wait until it has read every page that it knows now, once more."""
        for _ in range(self.pages):
            self.wait_for(1)

    @property
    def pages(self) -> int:
        """How many pages it knows."""
        return len(self._pages)

    @property
    def cookies(self) -> dict[str, str]:
        """Of the browser."""
        return {cookie.name: cookie.value or "" for cookie in self._client.cookies}

    def round(self) -> None:
        """Read a page."""
        if not self._is_in:
            self._sign_in()
        path = list(self._pages)[self._next % len(self._pages)]
        self._next += 1
        page = self._ask(self._client, "GET", path)
        if SIGN_IN in page.url:
            self._is_in = False
        if not page.ok or "html" not in page.headers["Content-Type"]:
            return
        links = {html.unescape(each) for pair in LINK.findall(page.text) for each in pair if each}
        self._load({link for link in links if link.startswith("/static/")}, page.url)
        for link in sorted(urlsplit(link).path for link in links):
            if len(self._pages) < MAX_PAGES and not link.startswith("/static/") and not LEFT_OUT.match(link):
                self._pages[link] = None
        if token := TOKEN.search(page.text):
            self._ask(
                self._client, "POST", "/accounts/language/", data={"csrfmiddlewaretoken": token[1], "language": "en"}
            )

    def _load(self, files: set[str], page: str) -> None:
        for path in sorted(files):
            parts = urlsplit(page)
            server = next(self._servers) if self.shared_files else f"{parts.scheme}://{parts.netloc}"
            if (server, path) not in self._had:
                self._had.add((server, path))
                self._ask(self._client, "GET", path, server)

    def _sign_in(self) -> None:
        form = self._ask(self._client, "GET", SIGN_IN)
        token = TOKEN.search(form.text)
        assert token, form.text[:500]
        self._ask(self._client, "POST", SIGN_IN, data={"csrfmiddlewaretoken": token[1], **self._login})
        self.sign_ins += 1
        self._is_in = True


class OpenList(SteadyWorker):
    """The list of sessions in a browser: a round is a change that it is told of."""

    def __init__(self, urls: list[str], visitor: Visitor) -> None:
        self._visitor = visitor
        self.connections = 0
        super().__init__(urls)

    def round(self) -> None:
        """Wait for a change; connect first where there is no connection."""
        asyncio.run(self._listen())

    async def _listen(self) -> None:
        while not self.stopped.is_set():
            server = next(self._servers)
            cookies = "; ".join(f"{name}={value}" for name, value in self._visitor.cookies.items())
            headers = {"Cookie": cookies, "Origin": server}
            with suppress(OSError, ConnectionClosed, InvalidHandshake):
                async with connect(
                    f"{server.replace('http', 'ws', 1)}/ws/sessions/list/", additional_headers=headers
                ) as it:
                    self.connections += 1
                    await it.send(json.dumps({"watch": {"tab": "running", "ids": []}}))
                    while not self.stopped.is_set():
                        with suppress(TimeoutError):
                            await asyncio.wait_for(it.recv(), 1)
                            self.rounds += 1
            await asyncio.sleep(PAUSE_SECONDS)


class Uploader(SteadyWorker):
    """Uploads a file in blocks over the API, each to another server, and downloads it again."""

    tus: ClassVar = {"Tus-Resumable": "1.0.0"}

    def __init__(self, urls: list[str], token: str, folder: str) -> None:
        self._client = requests.Session()
        self._client.headers["Authorization"] = f"Token {token}"
        self._folder = f"/api/v1/folders/{folder}"
        super().__init__(urls)

    def round(self) -> None:
        """Upload a file of four blocks."""
        content = random.randbytes(4 * BLOCK_BYTES)
        path = base64.b64encode(b"file").decode()
        about = {"Upload-Length": str(len(content)), "Upload-Metadata": f"path {path},conflict {_REPLACE}"}
        upload = self._ask(self._client, "POST", f"{self._folder}/uploads/", headers=self.tus | about).headers[
            "Location"
        ]
        for offset in range(0, len(content), BLOCK_BYTES):
            headers = self.tus | {"Upload-Offset": str(offset), "Content-Type": "application/offset+octet-stream"}
            block = content[offset : offset + BLOCK_BYTES]
            self._ask(self._client, "PATCH", urlsplit(upload).path, headers=headers, data=block)
            self.stopped.wait(PAUSE_SECONDS)
        assert self._ask(self._client, "GET", f"{self._folder}/download/?path=file").content == content


_REPLACE: Final = base64.b64encode(b"replace").decode()
