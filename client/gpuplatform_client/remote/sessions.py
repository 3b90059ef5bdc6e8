"""Sessions in which functions are run, for programs with an event loop and for those without."""

import asyncio
import codecs
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import fields
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from gpuplatform_client import stored_login
from gpuplatform_client.async_client import AsyncClient
from gpuplatform_client.commands import RemoteCommand
from gpuplatform_client.errors import ClientError
from gpuplatform_client.models.platform import LaunchSpec
from gpuplatform_client.operations.lookups import completed
from gpuplatform_client.remote.blocking import blocking
from gpuplatform_client.remote.calls import Arguments, RemoteError, RemoteJob, read_outcomes, results_of
from gpuplatform_client.stored_login import StoredLogin

Result = TypeVar("Result")
PIECE_BYTES: Final = 64 * 1024
OWN: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
ASK_VERSION: Final = "exec python3 -c 'import sys; print(\"%d.%d\" % sys.version_info[:2])'"
UNFIT: Final = frozenset({"count", "command"})  # fields of a launch: functions need one interactive session


class RemotePythonError(ClientError):
    """The session has no Python, or one of another version, which cannot have what is pickled here."""


class AsyncSession:
    """A session that runs functions: `async with AsyncSession.launch("pytorch", fgpu="0.5") as session`.

    A function and its arguments are pickled by cloudpickle, and so is what it returns or raises: whoever controls the
    session can have this process run any code. Each call has a process of its own, which ends with the connection.
    """

    def __init__(self, login: StoredLogin, session_id: str = "", spec: LaunchSpec | None = None) -> None:
        """Use a session, or with `spec` the one that is launched at the beginning of the block."""
        self.id = session_id
        self.keep = spec is None
        self.start_timeout: float | None = None
        self.call_timeout: float | None = None
        self._login = login
        self._spec = spec
        self._is_checked = False

    @classmethod
    def launch(
        cls,
        image: str,
        *,
        keep: bool = False,
        start_timeout: float | None = None,
        call_timeout: float | None = None,
        url: str = "",
        token: str = "",
        **amounts: Any,
    ) -> Self:
        """Return a session to be launched; `amounts` are fields of `LaunchSpec`, such as `fgpu`, `cpu`, `mounts`.

        It is ended at the end of the block unless `keep`. The time-outs are seconds until it runs, and of each call.
        The platform is the one of the command line, unless `url` and `token` say which.
        """
        if unknown := amounts.keys() - ({each.name for each in fields(LaunchSpec)} - UNFIT):
            raise TypeError(f"A session for functions has no {', '.join(sorted(unknown))}.")
        session = cls(platform_login(url, token), spec=LaunchSpec(image=image, **amounts))
        session.keep, session.start_timeout, session.call_timeout = keep, start_timeout, call_timeout
        return session

    @classmethod
    def attach(cls, session_id: str, *, call_timeout: float | None = None, url: str = "", token: str = "") -> Self:
        """Return a session that runs, by its id; it goes on after the block."""
        session = cls(platform_login(url, token), session_id)
        session.call_timeout = call_timeout
        return session

    async def __aenter__(self) -> Self:
        if self._spec and not self.id:
            await self._start(self._spec)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.keep:
            ending = asyncio.ensure_future(self.end())
            try:
                await asyncio.shield(ending)
            except asyncio.CancelledError:
                await ending
                raise

    async def run(self, function: Callable[..., Result], /, *args: Any, **options: Any) -> Result:
        """Return what the function returns in the session, and raise what it raises; its output is printed here.

        Raises RemotePythonError, RemoteError, TimeoutError, and ClientError where the session cannot be had.
        """
        [result] = results_of(await self.carry_out(function, [(args, options)], 0))
        return result  # type: ignore[no-any-return]

    async def map(
        self,
        function: Callable[[Any], Result],
        items: Iterable[Any],
        *,
        parallel: int = 4,
        return_exceptions: bool = False,
    ) -> list[Result | Exception]:
        """Return what the function returns of each item, in order, computed by so many processes of the session.

        The first exception is raised once all are done, or with `return_exceptions` each is returned in its place.
        """
        calls: list[Arguments] = [((item,), {}) for item in items]
        outcomes = await self.carry_out(function, calls, max(1, min(parallel, len(calls))))
        return results_of(outcomes, return_exceptions=return_exceptions)

    async def carry_out(self, function: Callable[..., Any], calls: Sequence[Arguments], parallel: int) -> list[Any]:
        """Return of each call its value, or a `Raised`; `parallel` as `RemoteJob.of` has it."""
        async with _within(self.call_timeout, "The call"):
            await self._check()
            job = RemoteJob.of(function, calls, parallel)
            code = await self._command(_Printer()).run(job.command, _pieces(job.given))
            if code:
                cause = ", as of lack of memory" if code == 128 + 9 else ""
                raise RemoteError(f"The process in the session ended with exit code {code}{cause}, before a result.")
            if not (outcomes := await self._read(f"cat {job.result} && rm {job.result}")):
                raise RemoteError("What came of the call is gone from the session.")
            return read_outcomes(outcomes)

    async def is_running(self) -> bool:
        """Return whether the session can run functions."""
        async with self._client() as client:
            return (await client.session(self.id)).status == "RUNNING"

    async def end(self) -> None:
        """End the session; ended already is success."""
        async with self._client() as client:
            await client.terminate(self.id)

    async def _start(self, spec: LaunchSpec) -> None:
        """Launch the session and return once it runs; it is ended where that fails or is cancelled."""
        async with self._client() as client:
            spec = completed(spec, [image async for image in client.images()])
            launching = asyncio.ensure_future(client.launch(spec))
            try:
                [session] = await asyncio.shield(launching)
                self.id = session.id
                async with _within(self.start_timeout, "The start of the session"):
                    await self._running(client)
            except BaseException:
                [session] = await launching  # a launch that was sent has an id to be ended by
                await client.terminate(session.id)
                raise

    async def _running(self, client: AsyncClient) -> None:
        async with aclosing(client.watch(self.id)) as changes:
            async for session in changes:
                if session.is_final:
                    raise ClientError(f"Session {session.name} has ended: {session.detail or session.reason}")
                if not session.is_waiting:
                    return

    async def _check(self) -> None:
        """Raise RemotePythonError unless the session has this version of Python."""
        if self._is_checked:
            return
        found = (await self._read(ASK_VERSION)).decode(errors="replace").strip()
        if found != OWN:
            what = f"Python {found}" if found else "no Python"
            raise RemotePythonError(f"Here is Python {OWN}, in the session {what}: functions need the same on both.")
        self._is_checked = True

    async def _read(self, command: str) -> bytes:
        """Return the output of a command."""
        output = bytearray()
        await self._command(lambda data, is_error: None if is_error else output.extend(data)).run(command, _pieces(b""))
        return bytes(output)

    def _command(self, write: Callable[[bytes, bool], None]) -> RemoteCommand:
        return RemoteCommand(self._login.url, self._login.token, self.id, write)

    def _client(self) -> AsyncClient:
        return AsyncClient(self._login.url, self._login.token)


class BlockingSession:
    """`AsyncSession` for programs without an event loop; the package has it as `Session`.

    Such as `with Session.launch("pytorch", fgpu="0.5") as session`.
    """

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    @classmethod
    def launch(cls, image: str, **options: Any) -> Self:
        """Launch a session and return it once it runs; the options are those of `AsyncSession.launch`."""
        return cls(blocking(AsyncSession.launch(image, **options).__aenter__()))

    @classmethod
    def attach(cls, session_id: str, **options: Any) -> Self:
        """Return a session that runs, by its id; it goes on after the block."""
        return cls(AsyncSession.attach(session_id, **options))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        blocking(self._session.__aexit__(kind, error, trace))

    @property
    def id(self) -> str:
        """Of the session."""
        return self._session.id

    def run(self, function: Callable[..., Result], /, *args: Any, **options: Any) -> Result:
        """Return what the function returns in the session; see `AsyncSession.run`."""
        return blocking(self._session.run(function, *args, **options))

    def map(self, function: Callable[[Any], Result], items: Iterable[Any], **options: Any) -> list[Result | Exception]:
        """Return what the function returns of each item, in order; see `AsyncSession.map`."""
        return blocking(self._session.map(function, items, **options))

    def is_running(self) -> bool:
        """Return whether the session can run functions."""
        return blocking(self._session.is_running())

    def end(self) -> None:
        """End the session; ended already is success."""
        blocking(self._session.end())


class _Printer:
    """Prints output and errors of a session as they come."""

    def __init__(self) -> None:
        self._decoders = [codecs.getincrementaldecoder("utf-8")("replace") for _ in range(2)]

    def __call__(self, data: bytes, is_error: bool) -> None:
        stream = sys.stderr if is_error else sys.stdout
        stream.write(self._decoders[is_error].decode(data))
        stream.flush()


@asynccontextmanager
async def _within(seconds: float | None, what: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise TimeoutError(f"{what} took more than {seconds:g} s.") from None


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), PIECE_BYTES):
        yield data[start : start + PIECE_BYTES]


def platform_login(url: str, token: str) -> StoredLogin:
    """Return what was given, and what the command line knows for the rest."""
    login = StoredLogin(url, token) if url and token else stored_login.load()
    if not login.url:
        raise ClientError("No platform is known yet: sign in with `gpuplatform login https://...`.")
    return login
