"""HTTPS as an import may use it: each hop's name is resolved once, its address checked, and that one connected to."""

from __future__ import annotations

import base64
import http.client
import ipaddress
import json
import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, urljoin, urlsplit

from imports.fetcher.job import FetchError, FetchJob
from imports.fetcher.public_addresses import is_allowed, is_in

TIMEOUT_SECONDS: Final = 60
MAX_REDIRECTS: Final = 5
MAX_JSON_BYTES: Final = 4 * 2**20
BLOCK: Final = 256 * 1024
REDIRECTS: Final = (301, 302, 303, 307, 308)
SLOW_SECONDS: Final = 60  # in which at least SLOW_BYTES have to come
SLOW_BYTES: Final = 60_000
# Names that all who see them read alike: curl would turn others into ASCII, and ask for their addresses again.
HOST: Final = re.compile(r"(?!-)[A-Za-z0-9.:-]*[A-Za-z0-9:]")
DEFAULT_PORTS: Final = {"https": 443, "http": 80, "ssh": 22}


def resolve(host: str, port: int, job: FetchJob, *, scheme: str = "https") -> str:
    """Return the address to connect to. Raises FetchError if any address of the name may not be reached.

    What is not encrypted goes to the operator's networks alone.
    """
    try:
        records = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise FetchError(f"There is no host {host}, or its name cannot be resolved here.") from error
    found = [ipaddress.ip_address(str(record[4][0]).partition("%")[0]) for record in records]
    may = is_in if scheme == "http" else is_allowed
    if scheme == "http" and not job.networks:
        raise FetchError(f"Nothing is fetched from {host} without TLS.")
    if not found or not all(may(address, job.networks) for address in found):
        raise FetchError(f"Nothing is fetched from {host}: its address is not a public one.")
    return str(found[0])


def checked(url: str, job: FetchJob) -> tuple[SplitResult, int, str]:
    """Return the parts of a URL, its port, and the address to connect to. Raises FetchError."""
    try:
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORTS.get(parts.scheme, 0)
    except ValueError as error:
        raise FetchError("What was fetched leads to an address that is not one.") from error
    if parts.scheme not in ("https", "http") or not parts.hostname or parts.username is not None:
        raise FetchError(
            f"What was fetched leads to an address that is not followed: {parts.scheme}://{parts.hostname}."
        )
    if not HOST.fullmatch(parts.hostname):
        raise FetchError("What was fetched leads to a host whose name is not one.")
    return parts, port, resolve(parts.hostname, port, job, scheme=parts.scheme)


class _PinnedConnection(http.client.HTTPSConnection):
    """A connection to an address that was checked; the certificate is checked against the name."""

    def __init__(self, parts: SplitResult, port: int, address: str) -> None:
        super().__init__(parts.hostname or "", port, timeout=TIMEOUT_SECONDS)
        self._address = address
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None

    def connect(self) -> None:
        """Connect to the address, whatever the name resolves to by now."""
        self.sock = socket.create_connection((self._address, self.port), TIMEOUT_SECONDS)
        if self._tls is not None:
            self.sock = self._tls.wrap_socket(self.sock, server_hostname=self.host)


@contextmanager
def opened(
    url: str, job: FetchJob, headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> Iterator[tuple[http.client.HTTPResponse, str]]:
    """Yield the successful response and the URL that it came from, after redirects. Raises FetchError."""
    for _hop in range(MAX_REDIRECTS + 1):
        parts, port, address = checked(url, job)
        connection = _PinnedConnection(parts, port, address)
        try:
            sent = {"User-Agent": "gpuplatform-import", **(headers or {}), **authorization(parts, job)}
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("GET" if body is None else "POST", target, body, sent)
            response = connection.getresponse()
            if response.status not in REDIRECTS:
                _check(response, parts)
                yield response, url
                return
            if body is not None:
                raise FetchError(f"{parts.hostname} answered with a redirect where none is followed.")
            url = urljoin(url, response.headers.get("Location", ""))
            headers = None  # they were for the first address
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            raise FetchError(f"{parts.hostname} could not be asked: {_words(error)}.") from error
        finally:
            connection.close()
    raise FetchError("It leads from one address to the next for ever.")


def authorization(parts: SplitResult, job: FetchJob) -> dict[str, str]:
    """Return the header with the token, where the address is of its host and encrypted or the operator's own."""
    credential = job.credential
    if credential is None or not credential.token or parts.hostname != credential.host:
        return {}
    pair = f"{credential.username or 'oauth2'}:{credential.token}".encode()
    return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}


def download(
    url: str, path: Path, job: FetchJob, words: str, *, before: int = 0, headers: Mapping[str, str] | None = None
) -> int:
    """Write what is at the URL to a new file; return its size. `before` bytes were fetched already."""
    size, since, size_then = 0, time.monotonic(), 0
    with opened(url, job, headers) as (response, _url), path.open("xb") as file:
        expected = response.length  # None: until the end
        while size != expected and (block := response.read1(min(BLOCK, expected - size) if expected else BLOCK)):
            size += len(block)
            if time.monotonic() - since > SLOW_SECONDS:
                if size - size_then < SLOW_BYTES:
                    raise FetchError("It comes too slowly.")
                since, size_then = time.monotonic(), size
            job.check_size(before + size)
            file.write(block)
            job.show(words, before + size)
    if expected is not None and size < expected:
        raise FetchError("The connection broke off before everything was fetched.")
    return size


def read_json(url: str, job: FetchJob, headers: Mapping[str, str] | None = None, body: bytes | None = None) -> Any:
    """Return the JSON value at the URL, of bounded size. Raises FetchError."""
    with opened(url, job, headers, body) as (response, _url):
        content = response.read(MAX_JSON_BYTES + 1)
    try:
        if len(content) > MAX_JSON_BYTES:
            raise ValueError
        return json.loads(content)
    except ValueError as error:
        raise FetchError(f"{urlsplit(url).hostname} sent an answer that is not understood.") from error


def _check(response: http.client.HTTPResponse, parts: SplitResult) -> None:
    if response.status in (401, 403, 404, 410):
        raise FetchError(
            f"{parts.hostname} does not have it, or not for everybody ({response.status})."
            " If it is private, choose a credential that may read it."
        )
    if response.status != 200:
        raise FetchError(f"{parts.hostname} answered with status {response.status}.")


def _words(error: Exception) -> str:
    reason = getattr(error, "verify_message", "") or getattr(error, "strerror", "") or str(error)
    return " ".join(reason.split())[:150] or type(error).__name__
