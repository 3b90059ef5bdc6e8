"""Sends HTTP requests from a thread with an event loop, to addresses that are checked as they are connected to.

A name is resolved once for each connection, and the very addresses that were checked are dialled, so that a name which
resolves to another address the second time (DNS rebinding) reaches nothing. Redirects are not followed, proxies of the
environment not used. No Django.
"""

import asyncio
import ipaddress
import logging
import ssl
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from http import HTTPStatus
from threading import Thread
from typing import Any, Final, Protocol, Self

import httpcore

from imports.fetcher.public_addresses import IPNetwork
from webhooks.destinations import is_allowed

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS: Final = 15.0  # of a request as a whole
MAX_RESPONSE_BYTES: Final = 2048  # of a response's body; no more is read
MAX_ADDRESSES: Final = 4  # of a name, which are tried one after another
MAX_LOOKUPS: Final = 128  # of names at once; one whose server is silent goes on after its request was given up
_DIVISIONS: Final = {"http": False, "https": True}


class BlockedAddressError(Exception):
    """All addresses of the name are ones to which nothing is sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendOutcome:
    """What came of a request: the response, or the problem why there is none."""

    status: int | None = None
    response: str = ""  # its beginning
    retry_after_seconds: int = 0
    problem: str = ""
    duration_ms: int = 0

    @property
    def is_success(self) -> bool:
        """Whether the receiver has taken the message."""
        return self.status is not None and HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES


class MessageSender(Protocol):
    """What messages are sent with, opened by `with`."""

    def post(self, url: str, headers: Mapping[str, str], body: str) -> Future[SendOutcome]:
        """Begin to send, and return the future of the outcome, which has no exception."""
        ...


class WebhookSender:
    """A thread that sends; a context manager. At its end requests under way are cancelled."""

    def __init__(self, networks: Iterable[IPNetwork], tls: ssl.SSLContext | None = None) -> None:
        self._networks = tuple(networks)
        self._tls = tls or ssl.create_default_context()
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(ThreadPoolExecutor(MAX_LOOKUPS, thread_name_prefix="webhook-lookup"))
        self._thread = Thread(target=self._loop.run_forever, name="webhook-sender", daemon=True)

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Cancel what is under way and end the thread."""
        asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def post(self, url: str, headers: Mapping[str, str], body: str) -> Future[SendOutcome]:
        """Begin to send, and return the future of the outcome, which has no exception."""
        return asyncio.run_coroutine_threadsafe(self._outcome(url, headers, body), self._loop)

    async def _outcome(self, url: str, headers: Mapping[str, str], body: str) -> SendOutcome:
        started = time.monotonic()
        found: dict[str, Any] = {}
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                found = await self._exchange(url, headers, body)
        except TimeoutError:
            found = {"problem": f"It took longer than {TIMEOUT_SECONDS:.0f} seconds."}
        except BlockedAddressError:
            found = {"problem": "The platform sends nothing to the addresses of this host."}
        except (httpcore.NetworkError, httpcore.TimeoutException, OSError) as error:
            found = {"problem": f"No connection: {str(error) or type(error).__name__}"[:200]}
        except (httpcore.ProtocolError, httpcore.UnsupportedProtocol, ValueError) as error:
            found = {"problem": f"No HTTP response: {str(error) or type(error).__name__}"[:200]}
        except Exception as error:
            logger.exception("webhook: sending failed")
            found = {"problem": f"The platform failed to send it: {type(error).__name__}"}
        return SendOutcome(**found, duration_ms=round((time.monotonic() - started) * 1000))

    async def _exchange(self, url: str, headers: Mapping[str, str], body: str) -> dict[str, Any]:
        is_encrypted = _DIVISIONS[url.partition(":")[0].lower()]
        async with AsyncExitStack() as stack:
            backend = _CheckedBackend(self._networks, is_encrypted)
            pool = httpcore.AsyncConnectionPool(ssl_context=self._tls, max_connections=1, network_backend=backend)
            await stack.enter_async_context(pool)
            sent = {**headers, "accept-encoding": "identity", "connection": "close"}
            request = pool.stream("POST", url, headers=list(sent.items()), content=body.encode())
            response = await stack.enter_async_context(request)
            text = b""
            async for part in response.aiter_stream():
                text += part[: MAX_RESPONSE_BYTES - len(text)]
                if len(text) >= MAX_RESPONSE_BYTES:
                    break
            received = {name.lower(): value for name, value in response.headers}
        wait = received.get(b"retry-after", b"")
        return {
            "status": response.status,
            "response": text.decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}"),
            "retry_after_seconds": int(wait) if wait.isdigit() and len(wait) < 8 else 0,
        }


class _CheckedBackend(httpcore.AsyncNetworkBackend):
    """Opens connections to addresses that are allowed alone."""

    def __init__(self, networks: Iterable[IPNetwork], is_encrypted: bool) -> None:
        self._networks = tuple(networks)
        self._is_encrypted = is_encrypted
        self._plain = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Any = None,
    ) -> httpcore.AsyncNetworkStream:
        """Return a connection to the first address that takes one.

        Raises BlockedAddressError, OSError for an unknown name, and httpcore.ConnectError.
        """
        found = await asyncio.get_running_loop().getaddrinfo(host, port, proto=6)
        addresses = dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found)
        allowed = [
            address
            for address in addresses
            if is_allowed(ipaddress.ip_address(address), self._networks, is_encrypted=self._is_encrypted)
        ]
        failure: httpcore.ConnectError | None = None
        for address in allowed[:MAX_ADDRESSES]:
            try:
                return await self._plain.connect_tcp(address, port, timeout, local_address, socket_options)
            except httpcore.ConnectError as error:
                failure = error
        raise failure or BlockedAddressError

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
