"""Browsers, terminals and programs that use a platform as load: protocol clients in one event loop."""

import asyncio
import json
import random
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Origin

OPEN_SECONDS: Final = 120.0
MAX_OPENING: Final = 20  # websockets at a time
KEY_SECONDS: Final = 1.0  # between two keys of a terminal
ECHO_SECONDS: Final = 30.0
REFETCH_SECONDS: Final = 1.5  # at most, before a list is fetched again
HTMX_HEADERS: Final = {"HX-Request": "true"}
BODY: Final = {"cpu": 1, "memory": "2g", "fgpu": "1"}
MIX: Final = {"sessions": 40, "session": 30, "limits": 20, "submit": 5, "terminate": 5}  # requests of 100
TOO_MANY: Final = 429
KINDS: Final = ("list page", "terminal echo", *MIX)


@dataclass(slots=True)
class Measurements:
    """What the clients measured: milliseconds by kind, responses by status, and when rows arrived at lists."""

    milliseconds: dict[str, list[float]] = field(default_factory=dict)
    statuses: dict[int, int] = field(default_factory=dict)
    shown_at: dict[str, list[float]] = field(default_factory=dict)  # of each session, at whatever browser
    failures: dict[str, int] = field(default_factory=dict)
    refusals: dict[str, list[float]] = field(default_factory=dict)  # milliseconds until each or nothing, by client

    def note(self, kind: str, seconds: float) -> None:
        """Note how long one thing took."""
        self.milliseconds.setdefault(kind, []).append(seconds * 1000)

    def refuse(self, who: str, seconds: float) -> None:
        """Note that a client was refused, or got no response, after so long."""
        self.refusals.setdefault(who, []).append(seconds * 1000)

    def fail(self, what: str) -> None:
        """Count a failure."""
        self.failures[what] = self.failures.get(what, 0) + 1


class LoadClients:
    """All clients of one platform at `address`, host:port; programs end no session of `kept`, which have terminals."""

    def __init__(self, address: str, measured: Measurements, kept: Collection[str] = ()) -> None:
        self._address = address
        self._measured = measured
        self._kept = frozenset(kept)
        self._opening = asyncio.Semaphore(MAX_OPENING)
        self._random = random.Random(1)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self._http = httpx.AsyncClient(base_url=f"http://{address}", timeout=60, limits=limits)
        self._tasks: list[asyncio.Task[None]] = []
        self.opened = {"browsers": 0, "terminals": 0}  # now

    def begin(
        self,
        cookies: Iterable[str],
        terminals: Iterable[tuple[str, str]],
        tokens: Iterable[str],
        image: str,
        pause: float,
    ) -> None:
        """Start one browser for each cookie, one terminal for each (cookie, session), one program for each token."""
        work = [*(self._browser(each) for each in cookies), *(self._terminal(*each) for each in terminals)]
        work += [self._program(token, image, pause) for token in tokens]
        self._tasks = [asyncio.create_task(self._guarded(each)) for each in work]

    async def end(self) -> None:
        """Stop all of them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._http.aclose()

    async def _guarded(self, work: Any) -> None:
        try:
            await work
        except (OSError, ConnectionClosed, TimeoutError, httpx.HTTPError) as error:
            self._measured.fail(f"{work.__name__}: {type(error).__name__}")

    @contextmanager
    def _counted(self, kind: str) -> Iterator[None]:
        """Count one that is open during the block."""
        self.opened[kind] += 1
        try:
            yield
        finally:
            self.opened[kind] -= 1

    async def _open(self, path: str, cookie: str) -> ClientConnection:
        async with self._opening:
            return await connect(
                f"ws://{self._address}{path}",
                origin=Origin(f"http://{self._address}"),
                additional_headers={"Cookie": f"gp_session={cookie}"},
                open_timeout=OPEN_SECONDS,
                ping_interval=None,
            )

    async def _browser(self, cookie: str) -> None:
        """Have a list open: read what is pushed, and fetch the list again where the page would."""
        socket = await self._open("/ws/sessions/list/", cookie)
        await socket.send(json.dumps({"watch": {"tab": "running", "group": 1, "language": "en"}}))
        fetching: asyncio.Task[None] | None = None
        with self._counted("browsers"):
            async for text in socket:
                now, message = time.time(), json.loads(text)
                for row in message.get("rows", ()):
                    self._measured.shown_at.setdefault(row["id"], []).append(now)
                if "session" in message and (fetching is None or fetching.done()):
                    fetching = asyncio.create_task(self._fetch(cookie))

    async def _fetch(self, cookie: str) -> None:
        await asyncio.sleep(self._random.random() * REFETCH_SECONDS)
        try:
            await self._ask("list page", "GET", "/sessions/", {"Cookie": f"gp_session={cookie}", **HTMX_HEADERS})
        except httpx.HTTPError as error:
            self._measured.fail(f"list page: {type(error).__name__}")

    async def _terminal(self, cookie: str, session: str) -> None:
        """Type a key each second, and wait for its echo."""
        socket = await self._open(f"/ws/sessions/{session}/terminal/", cookie)
        if not await self._until_shown(socket, b"$ "):
            return
        number = 0
        with self._counted("terminals"):
            while True:
                await asyncio.sleep(KEY_SECONDS * (0.5 + self._random.random()))
                number += 1
                await socket.send(json.dumps({"ping": number}))
                await self._until_pong(socket, number)
                await socket.send(json.dumps({"seen": number}))
                begun = time.perf_counter()
                await socket.send(b"x")
                if not await self._until_shown(socket, b"x"):
                    break
                self._measured.note("terminal echo", time.perf_counter() - begun)

    async def _until_pong(self, socket: ClientConnection, number: int) -> None:
        async with asyncio.timeout(ECHO_SECONDS):
            async for message in socket:
                if isinstance(message, str) and json.loads(message).get("pong") == number:
                    return

    async def _until_shown(self, socket: ClientConnection, what: bytes) -> bool:
        """Return whether the terminal shows this before it closes. Raises TimeoutError."""
        async with asyncio.timeout(ECHO_SECONDS):
            async for message in socket:
                if isinstance(message, bytes) and what in message:
                    return True
        return False

    async def _program(self, token: str, image: str, pause: float) -> None:
        """Ask for something now and then, and launch and end sessions of its user."""
        headers = {"Authorization": f"Token {token}"}
        known: list[str] = []
        await asyncio.sleep(self._random.random() * pause)
        while True:
            (kind,) = self._random.choices(list(MIX), list(MIX.values()))
            await self._request(kind, headers, known, image)
            await asyncio.sleep(pause * (0.5 + self._random.random()))

    async def _request(self, kind: str, headers: dict[str, str], known: list[str], image: str) -> None:
        chosen = self._random.choice(known) if known else ""
        match kind:
            case "session" if chosen:
                await self._ask(kind, "GET", f"/api/v1/sessions/{chosen}/", headers)
            case "limits":
                await self._ask(kind, "GET", "/api/v1/me/limits/", headers)
            case "submit":
                await self._ask(kind, "POST", "/api/v1/sessions/", headers, BODY | {"image": image})
            case "terminate" if chosen:
                known.remove(chosen)
                await self._ask(kind, "POST", f"/api/v1/sessions/{chosen}/terminate/", headers)
            case _:
                found = await self._ask("sessions", "GET", "/api/v1/sessions/?status=RUNNING", headers)
                known[:] = [each["id"] for each in found.get("results", ()) if each["id"] not in self._kept]

    async def _ask(
        self, kind: str, verb: str, path: str, headers: dict[str, str], body: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        begun = time.perf_counter()
        try:
            response = await self._http.request(verb, path, headers=headers, json=body)
        except httpx.HTTPError as error:
            self._measured.fail(f"{kind}: {type(error).__name__}")
            self._measured.refuse(next(iter(headers.values())), time.perf_counter() - begun)
            return {}
        self._measured.statuses[response.status_code] = self._measured.statuses.get(response.status_code, 0) + 1
        if response.status_code == TOO_MANY or response.is_server_error:
            self._measured.refuse(next(iter(headers.values())), time.perf_counter() - begun)
        if not response.is_success:
            self._measured.fail(f"{kind}: {response.status_code}")
            return {}
        self._measured.note(kind, time.perf_counter() - begun)
        found = response.json() if "json" in response.headers.get("content-type", "") else {}
        return found if isinstance(found, dict) else {}
