"""Bounds the requests that Django works on at once, so that overload is a quick 503 and never an error of the pool."""

import asyncio
import functools
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from django.db import connection
from django.http import HttpResponse
from django.utils.translation import get_language, gettext

from gpuplatform.database_silence import server_of
from gpuplatform.request_metrics import REFUSED
from gpuplatform.unavailable import API, database_away, unavailable
from proxy.asgi import Application
from proxy.asgi_request import Message, Receive, Scope, Send

SLOTS: Final = 8  # requests under way in one process: fewer than its pool has connections; more only delay each other
QUEUE: Final = 128  # requests that wait for a slot
WAIT_SECONDS: Final = 0.5
DEMAND_WEIGHT: Final = 0.1  # of the newest request in the moving average of what one costs
PROBE_AFTER_SECONDS: Final = 1.0  # without a response, after which the database is probed
PROBE_TIMEOUT_SECONDS: Final = 1.0
BUFFER_BYTES: Final = 1024 * 1024  # of a response, which a slow client takes after the slot was released
POLICY: Final = "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'"  # middleware does not see this page
EVENTS: Final = b"text/event-stream"
UNLIMITED: Final = frozenset({"/healthz", "/metrics"})


logger = logging.getLogger(__name__)


class Admission:
    """ASGI middleware that gives each request a slot while Django works on it; refuses with 503 what waits too long.

    A request for which the CPU time of those that wait already is too long is refused at once: Django's threads share
    one interpreter lock, so that requests in front of it take at least the sum of their CPU times.
    A response is buffered up to BUFFER_BYTES, so that neither its slot nor its database connection depends on how fast
    the client reads. One that is larger keeps its slot until it is sent; a stream of events gives it back as it begins.
    Where the database has fallen silent, clients get 503 at once, however long the threads of their requests wait for
    it, which keep their slots meanwhile.
    """

    def __init__(
        self,
        application: Application,
        *,
        slots: int = SLOTS,
        queue: int = QUEUE,
        wait_seconds: float = WAIT_SECONDS,
        probe_after_seconds: float = PROBE_AFTER_SECONDS,
        database_answers: Callable[[], bool] | None = None,
        cpu_time: Callable[[], float] = time.process_time,
    ) -> None:
        """`queue` is the number of requests that may wait; `cpu_time` returns the seconds used so far."""
        self._application = application
        self._slots = asyncio.Semaphore(slots)
        self._demand = _ServiceDemand(cpu_time)
        self._waiting = 0
        self._queue = queue
        self._wait_seconds = wait_seconds
        self._probe_after_seconds = probe_after_seconds
        self._database_answers = database_answers or _database_answers
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="admission")
        self._abandoned: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request, or refuse it; its body is received first, as slowly as the client sends it."""
        if scope["path"] in UNLIMITED:
            await self._application(scope, receive, send)
            return
        request = await _BufferedRequest.received(receive)
        if request.is_abandoned:
            return
        if not await self._acquire():
            REFUSED.inc()
            await _send(_refusal(scope["path"], is_silent=bool(self._abandoned)), send)
            return
        response = _BufferedResponse(send, on_stream=self._release)
        work = asyncio.create_task(self._work(scope, request, response))
        try:
            is_stuck = await self._is_stuck(work, response)
        except asyncio.CancelledError:
            work.cancel()
            raise
        if is_stuck:
            self._abandon(work, response)
            REFUSED.inc()
            await _send(_refusal(scope["path"], is_silent=True), send)
            return
        await work
        await response.flush()

    async def _work(self, scope: Scope, request: "_BufferedRequest", response: "_BufferedResponse") -> None:
        """Have the request worked on in its slot."""
        try:
            await self._application(scope, request.receive, response.send)
        finally:
            if not response.is_stream:
                self._release()

    async def _is_stuck(self, work: asyncio.Task[None], response: "_BufferedResponse") -> bool:
        """Return True once the request waits for a silent database, False once it is done."""
        while True:
            timeout = None if response.has_begun else self._probe_after_seconds
            done, _ = await asyncio.wait({work}, timeout=timeout)
            if done:
                return False
            loop = asyncio.get_running_loop()
            if not response.has_begun and not await loop.run_in_executor(self._executor, self._database_answers):
                return not (work.done() or response.has_begun)

    def _abandon(self, work: asyncio.Task[None], response: "_BufferedResponse") -> None:
        """Let the request end by itself; nobody waits for its response any more."""
        response.discard()
        self._abandoned.add(work)
        work.add_done_callback(self._end_abandoned)

    def _end_abandoned(self, work: asyncio.Task[None]) -> None:
        self._abandoned.discard(work)
        if not work.cancelled() and (error := work.exception()):
            logger.warning("a request that waited for the database ended with %r", error)

    async def _acquire(self) -> bool:
        """Return whether there was a slot in time; False at once where there cannot be one."""
        if self._slots.locked() and not self._may_wait():
            return False
        self._waiting += 1
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._slots.acquire()
        except TimeoutError:
            return False
        finally:
            self._waiting -= 1
        self._demand.begin()
        return True

    def _may_wait(self) -> bool:
        """Return whether a slot may be free in time for one more request."""
        return self._waiting < self._queue and (self._waiting + 1) * self._demand.cpu_seconds < self._wait_seconds

    def _release(self) -> None:
        """Free the slot of a request."""
        self._demand.end()
        self._slots.release()


class _ServiceDemand:
    """What a request costs: this process's CPU time per completed request, as a moving average.

    The service demand law of operational analysis (Denning and Buzen, 1978): busy time by completions. Periods
    without a request are not counted; apps' traffic during one is, since it shares the interpreter lock.
    """

    def __init__(self, cpu_time: Callable[[], float]) -> None:
        self.cpu_seconds = 0.0
        self._cpu_time = cpu_time
        self._under_way = 0
        self._counted = 0.0  # of the CPU time

    def begin(self) -> None:
        """Count a request as under way."""
        if not self._under_way:
            self._counted = self._cpu_time()
        self._under_way += 1

    def end(self) -> None:
        """Count a request as completed."""
        now = self._cpu_time()
        self.cpu_seconds += DEMAND_WEIGHT * (now - self._counted - self.cpu_seconds)
        self._counted = now
        self._under_way -= 1


class _BufferedRequest:
    """The messages of a request, to be received again."""

    def __init__(self, messages: list[Message], receive: Receive) -> None:
        self._messages = messages
        self._receive = receive

    @property
    def is_abandoned(self) -> bool:
        """Whether the client has left before it had sent all."""
        return bool(self._messages) and self._messages[-1]["type"] == "http.disconnect"

    @classmethod
    async def received(cls, receive: Receive) -> "_BufferedRequest":
        """Return the request once its body is complete, or its client gone."""
        messages = [await receive()]
        while messages[-1].get("more_body"):
            messages.append(await receive())
        return cls(messages, receive)

    async def receive(self) -> Message:
        """Return the next message: those of the body, then what the server has to tell."""
        return self._messages.pop(0) if self._messages else await self._receive()


class _BufferedResponse:
    """Keeps the messages of a response until `flush`, or sends them on once they are too large."""

    def __init__(self, send: Send, *, on_stream: Callable[[], None]) -> None:
        self._send = send
        self._on_stream = on_stream
        self._messages: list[Message] = []
        self._buffered_bytes = 0
        self._is_discarded = False
        self.has_begun = False
        self.is_stream = False  # of events, which are sent as they come

    async def send(self, message: Message) -> None:
        """Take the next message."""
        if self._is_discarded:
            return
        self.has_begun = True
        self._messages.append(message)
        self._buffered_bytes += len(message.get("body", b""))
        if message["type"] == "http.response.start" and (b"Content-Type", EVENTS) in message["headers"]:
            self.is_stream = True
            self._on_stream()
        if self.is_stream or self._buffered_bytes > BUFFER_BYTES:
            await self.flush()

    def discard(self) -> None:
        """Send nothing, neither what is kept nor what comes."""
        self._is_discarded = True
        self._messages = []

    async def flush(self) -> None:
        """Send what is kept."""
        messages, self._messages = self._messages, []
        for message in messages:
            await self._send(message)


def _refusal(path: str, *, is_silent: bool) -> HttpResponse:
    """Return 503, which says that the server is busy, or that its database is silent."""
    return _rendered_refusal(path.startswith(API), is_silent, get_language())


@functools.cache
def _rendered_refusal(is_api: bool, is_silent: bool, _language: str) -> HttpResponse:
    """Return the response for the API or for pages, rendered once: rendering costs more than all else of a refusal."""
    path = API if is_api else "/"
    response = database_away(path) if is_silent else unavailable(path, gettext("The server is busy."))
    response["Content-Security-Policy"] = POLICY
    return response


async def _send(response: HttpResponse, send: Send) -> None:
    """Send a response that Django has not worked on."""
    headers = [(name.lower().encode(), value.encode()) for name, value in response.items()]
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": response.content})


def _database_answers() -> bool:
    """Return whether the database answers a new connection within PROBE_TIMEOUT_SECONDS."""
    server = server_of(connection.get_connection_params())
    return server is None or server.answers(PROBE_TIMEOUT_SECONDS)
