"""Bounds the requests that Django works on at once, and has others wait in a fair order, as long as that is of use."""

import asyncio
import functools
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from django.db import connection

from gpuplatform.serving.admission.buffers import BufferedRequest, BufferedResponse
from gpuplatform.serving.admission.costs import RequestCosts
from gpuplatform.serving.admission.principals import Principals
from gpuplatform.serving.admission.queue import AdmissionQueue, QueuedRequest
from gpuplatform.serving.admission.refusal import refusal, send_response
from operations.database.silence import server_of
from operations.metrics.admission import KEY, RequestReport
from operations.metrics.requests import REFUSED
from proxy.http.asgi import Application, Receive, Scope, Send

SLOTS: Final = 8  # requests under way in one process: fewer than its pool has connections; more only delay each other
QUEUE: Final = 1024  # requests that wait for a slot
QUEUE_BYTES: Final = 32 * 1024 * 1024  # of their bodies
WAIT_SECONDS: Final = 5.0
LONG_SECONDS: Final = 0.25  # several times what a page takes: a request still under way waits for something else
PROBE_AFTER_SECONDS: Final = 1.0  # without a response, after which the database is probed
PROBE_TIMEOUT_SECONDS: Final = 1.0
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
UNLIMITED: Final = frozenset({"/healthz", "/metrics"})


logger = logging.getLogger(__name__)


class Admission:
    """ASGI middleware that gives each request a slot while Django works on it; others wait for WAIT_SECONDS at most.

    A request that could not start in that time, by what those before it are expected to cost, is refused with 503 at
    once: Django's threads share one interpreter lock, so that they take at least the sum of their CPU times.
    A response is buffered up to BUFFER_BYTES, so that neither its slot nor its database connection depends on how fast
    the client reads. One that is larger keeps its slot until it is sent; a stream of events gives it back as it begins.
    A request whose client leaves while it waits is forgotten; one that is worked on keeps its slot until its thread,
    which nothing can end, is done with it.
    Where the database has fallen silent, clients get 503 at once, however long the threads of their requests wait for
    it, which keep their slots meanwhile.
    """

    def __init__(
        self,
        application: Application,
        *,
        slots: int = SLOTS,
        queue: int = QUEUE,
        queue_bytes: int = QUEUE_BYTES,
        wait_seconds: float = WAIT_SECONDS,
        long_seconds: float = LONG_SECONDS,
        probe_after_seconds: float = PROBE_AFTER_SECONDS,
        database_answers: Callable[[], bool] | None = None,
        costs: RequestCosts | None = None,
    ) -> None:
        """`queue` and `queue_bytes` bound the requests that wait, and their bodies."""
        self._application = application
        self._queue = AdmissionQueue(slots, queue, queue_bytes)
        self._starts: dict[QueuedRequest, asyncio.Future[bool]] = {}  # of those that wait
        self._costs = costs or RequestCosts()
        self._principals = Principals()
        self._wait_seconds = wait_seconds
        self._long_seconds = long_seconds
        self._probe_after_seconds = probe_after_seconds
        self._is_database_responsive = database_answers or _is_database_responsive
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="admission")
        self._abandoned: set[asyncio.Future[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request, or refuse it; its body is received first, as slowly as the client sends it."""
        if scope["path"] in UNLIMITED:
            await self._application(scope, receive, send)
            return
        request = await BufferedRequest.received(receive)
        if request.has_left:
            return
        queued = QueuedRequest(
            self._principals.principal_of(scope),
            self._costs.estimate_seconds(scope["method"], scope["path"]),
            request.size_bytes,
            is_write=scope["method"] not in SAFE_METHODS,
        )
        if await self._has_started(scope, queued, request):
            await self._serve(scope, request, send, queued)
        elif not request.has_left:
            await self._refuse(scope, request, send)

    async def _has_started(self, scope: Scope, queued: QueuedRequest, request: BufferedRequest) -> bool:
        """Wait for a slot; return False if the request is refused, or its client has left."""
        if self._queue.wait_seconds(queued) * self._costs.slowdown > self._wait_seconds:
            return False
        start: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._starts[queued] = start
        for dropped in self._queue.add(queued):
            self._starts[dropped].set_result(False)
        self._start_next()
        try:
            if not start.done():
                await request.wait_for_end_or(start, self._wait_seconds)
        except asyncio.CancelledError:
            if start.done() and start.result():
                self._finish(scope, queued, RequestReport())
            raise
        finally:
            del self._starts[queued]
            if not start.done():
                self._queue.remove(queued)
        return start.done() and start.result()

    def _start_next(self) -> None:
        """Give free slots to requests that wait."""
        while queued := self._queue.take():
            self._costs.begin()
            self._starts[queued].set_result(True)

    async def _serve(self, scope: Scope, request: BufferedRequest, send: Send, queued: QueuedRequest) -> None:
        """Have the request worked on in its slot, and send the response."""
        report = scope[KEY] = RequestReport()
        long = asyncio.get_running_loop().call_later(self._long_seconds, self._note_long, queued)

        def end() -> None:
            long.cancel()
            self._finish(scope, queued, report)

        response = BufferedResponse(send, on_end=end)
        receive = functools.partial(request.receive, response)
        work = asyncio.ensure_future(self._application(scope, receive, response.send))
        work.add_done_callback(lambda _: response.end())
        try:
            is_stuck = await self._is_stuck(work, response)
        except asyncio.CancelledError:
            work.cancel()
            raise
        if is_stuck:
            self._abandon(work, response)
            await self._refuse(scope, request, send, is_silent=True)
            return
        await work
        await response.flush()

    def _note_long(self, queued: QueuedRequest) -> None:
        self._queue.note_long(queued)
        self._start_next()

    def _finish(self, scope: Scope, queued: QueuedRequest, report: RequestReport) -> None:
        """Free the slot of a request, and learn from it."""
        is_saturated = self._queue.has_waiting
        self._costs.end(scope["method"], scope["path"], report.thread_seconds, is_saturated=is_saturated)
        if report.is_known:
            self._principals.learn(scope, report.user_id)
        self._queue.finish(queued)
        self._start_next()

    async def _refuse(self, scope: Scope, request: BufferedRequest, send: Send, *, is_silent: bool = False) -> None:
        """Send 503, which says that the server is busy, or that its database is silent."""
        REFUSED.inc()
        response = refusal(scope, request.body, is_silent=is_silent or bool(self._abandoned))
        await send_response(response, send)

    async def _is_stuck(self, work: asyncio.Future[None], response: BufferedResponse) -> bool:
        """Return True once the request waits for a silent database, False once it is done."""
        while True:
            timeout = None if response.has_begun else self._probe_after_seconds
            done, _ = await asyncio.wait({work}, timeout=timeout)
            if done:
                return False
            loop = asyncio.get_running_loop()
            if not response.has_begun and not await loop.run_in_executor(self._executor, self._is_database_responsive):
                return not (work.done() or response.has_begun)

    def _abandon(self, work: asyncio.Future[None], response: BufferedResponse) -> None:
        """Let the request end by itself; nobody waits for its response any more."""
        response.discard()
        self._abandoned.add(work)
        work.add_done_callback(self._end_abandoned)

    def _end_abandoned(self, work: asyncio.Future[None]) -> None:
        self._abandoned.discard(work)
        if not work.cancelled() and (error := work.exception()):
            logger.warning("a request that waited for the database ended with %r", error)


def _is_database_responsive() -> bool:
    """Return whether the database answers a new connection within PROBE_TIMEOUT_SECONDS."""
    server = server_of(connection.get_connection_params())
    return server is None or server.is_responsive(PROBE_TIMEOUT_SECONDS)
