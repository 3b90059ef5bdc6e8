"""The client for programs with an event loop: method by method as `client.Client`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, TypeVar

import httpx
from httpx_sse import EventSource, ServerSentEvent
from tenacity import AsyncRetrying

from gpuplatform_client import operations, transfers
from gpuplatform_client.errors import UnreachableServerError, error_from
from gpuplatform_client.models import (
    AccountInfo,
    AppState,
    ComputeSession,
    DataFolder,
    EntryInfo,
    ImageVersion,
    IssuedToken,
    LaunchEstimate,
    LaunchSpec,
    ProjectInfo,
    ProjectMember,
    ResizeSpec,
    TimelineEvent,
    UsageWindow,
)
from gpuplatform_client.operations import FIRST, ApiOperation, ResultPage
from gpuplatform_client.retries import RECONNECT_SECONDS, RETRY_SECONDS, retry_options, unreachable
from gpuplatform_client.streams import StreamPosition, check_stream, read_output, read_session
from gpuplatform_client.transfers import PartialDownload, UploadState
from gpuplatform_client.transport import REQUEST_SECONDS, api_url, request_headers

Result = TypeVar("Result")


class AsyncClient:
    """The API of a platform. Requests that do no harm twice are repeated for `retry_seconds`; see `errors`."""

    def __init__(self, url: str, token: str = "", *, retry_seconds: float = RETRY_SECONDS) -> None:
        self._http = httpx.AsyncClient(base_url=api_url(url), headers=request_headers(token), timeout=REQUEST_SECONDS)
        self._retry_seconds = retry_seconds

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def run(self, operation: ApiOperation[Result]) -> Result:
        """Carry out an operation and return its result. Raises ApiError and UnreachableServerError."""
        if operation.is_repeatable:
            return await self._repeat(lambda: self._send(operation))
        try:
            return await self._send(operation)
        except httpx.TransportError as error:
            raise UnreachableServerError(unreachable(self._http.base_url, error)) from error

    async def login(self, email: str, password: str, code: str = "") -> IssuedToken:
        """Return a new token, which this client uses from now on; `code` is that of the second factor."""
        issued = await self.run(operations.issue_token(email, password, code))
        self._http.headers.update(request_headers(issued.token))
        return issued

    async def logout(self) -> None:
        """Revoke the token."""
        await self.run(operations.revoke_token())

    async def account(self) -> AccountInfo:
        """Return the user whose token is used."""
        return await self.run(operations.account())

    def images(self) -> AsyncIterator[ImageVersion]:
        """Yield the images that may be launched."""
        return self._items(operations.images)

    def sessions(self, **query: str) -> AsyncIterator[ComputeSession]:
        """Yield sessions, newest first; `tab`, `status`, `name` and `owner` select."""
        return self._items(operations.sessions, query)

    async def session(self, session_id: str) -> ComputeSession:
        """Return a session."""
        return await self.run(operations.session(session_id))

    async def launch(self, spec: LaunchSpec) -> list[ComputeSession]:
        """Launch sessions and return them; repeated after a broken connection, the request launches nothing twice."""
        return await self.run(operations.launch(spec))

    async def estimate(self, spec: LaunchSpec) -> LaunchEstimate:
        """Return when a launch would start."""
        return await self.run(operations.estimate(spec))

    async def terminate(self, session_id: str) -> ComputeSession:
        """End a session."""
        return await self.run(operations.terminate(session_id))

    async def resize(self, session_id: str, spec: ResizeSpec) -> ComputeSession:
        """Have a running session hold other amounts; `resizing` of the session says until when that is under way."""
        return await self.run(operations.resize(session_id, spec))

    def session_events(self, session_id: str) -> AsyncIterator[TimelineEvent]:
        """Yield the events of a session, oldest first."""
        return self._items(lambda query: operations.session_events(session_id, query))

    async def logs(self, session_id: str, tail: int = 500) -> str:
        """Return the last `tail` lines of output."""
        return await self.run(operations.logs(session_id, tail))

    def follow_logs(self, session_id: str) -> AsyncIterator[str]:
        """Yield output in pieces, from its beginning, until the session has ended."""
        return self._follow(operations.log_path(session_id), read_output)

    def watch(self, session_id: str) -> AsyncIterator[ComputeSession]:
        """Yield the session now and after every change, until it has ended."""
        return self._follow(operations.watch_path(session_id), read_session)

    async def usage(self, session_id: str) -> UsageWindow:
        """Return the use of the last hour."""
        return await self.run(operations.usage(session_id))

    async def open_app(self, session_id: str, app: str) -> AppState:
        """Open an app, or `p8080` for a port."""
        return await self.run(operations.open_app(session_id, app))

    def folders(self) -> AsyncIterator[DataFolder]:
        """Yield the data folders that may be read."""
        return self._items(operations.folders)

    async def create_folder(self, name: str) -> DataFolder:
        """Create a data folder."""
        return await self.run(operations.create_folder(name))

    async def delete_folder(self, folder_id: str) -> None:
        """Move a data folder to the trash."""
        await self.run(operations.delete_folder(folder_id))

    def entries(self, folder_id: str, path: str = "") -> AsyncIterator[EntryInfo]:
        """Yield what is in a directory of a folder."""
        return self._items(lambda query: operations.entries(folder_id, query), {"path": path})

    def projects(self) -> AsyncIterator[ProjectInfo]:
        """Yield the user's projects."""
        return self._items(operations.projects)

    def project_members(self, project_id: int) -> AsyncIterator[ProjectMember]:
        """Yield the members of a project."""
        return self._items(lambda query: operations.project_members(project_id, query))

    async def add_project_member(self, project_id: int, email: str, *, role: str = "member") -> ProjectMember:
        """Make an account a member, or with the role "manager" a manager."""
        return await self.run(operations.add_project_member(project_id, email, role))

    async def change_project_member(self, project_id: int, member_id: int, *, role: str) -> ProjectMember:
        """Make a member a manager, or a manager a member."""
        return await self.run(operations.change_project_member(project_id, member_id, role))

    async def remove_project_member(self, project_id: int, member_id: int) -> None:
        """End a membership."""
        await self.run(operations.remove_project_member(project_id, member_id))

    async def invite_to_project(self, project_id: int, email: str) -> None:
        """Have somebody without an account mailed a link, which makes one that is a member."""
        await self.run(operations.invite_to_project(project_id, email))

    async def upload(self, folder_id: str, source: Path, path: str, *, overwrites: bool = False) -> None:
        """Upload a file to `path` of a folder; after a broken connection it goes on where it ended (tus 1.0.0)."""
        with source.open("rb") as file:
            upload = await self.run(transfers.create_upload(folder_id, file, path, overwrites=overwrites))
            while upload.offset < upload.length:
                upload = await self._repeat(partial(self._append, upload, file))

    async def download(self, folder_id: str, path: str, target: Path) -> None:
        """Download a file of a folder; after a broken connection it goes on. `target` appears once it is whole."""
        with PartialDownload(target) as file:
            while not file.is_whole:
                await self._repeat(lambda: self._fetch(operations.download(folder_id, path, file.headers), file))

    async def _append(self, upload: UploadState, file: BinaryIO) -> UploadState:
        at = await self._send(transfers.find_offset(upload))
        return at if at.offset > upload.offset else await self._send(transfers.append(at, file))

    async def _fetch(self, operation: ApiOperation[None], file: PartialDownload) -> None:
        async with aclosing(await self._open(operation)) as response:
            with file.receiving(response):
                async for piece in response.aiter_bytes():
                    file.write(piece)

    async def _follow(self, path: str, read: Callable[[ServerSentEvent], list[Result]]) -> AsyncIterator[Result]:
        position = StreamPosition()
        while True:
            operation = operations.stream(path, position.headers)
            async with aclosing(await self._repeat(partial(self._open, operation))) as response:
                check_stream(response)
                try:
                    async for event in EventSource(response).aiter_sse():
                        is_last = position.advance(event)
                        for item in read(event):
                            yield item
                        if is_last:
                            return
                except httpx.TransportError:
                    pass
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _items(
        self, page: Callable[[Mapping[str, str]], ApiOperation[ResultPage[Result]]], query: Mapping[str, str] = FIRST
    ) -> AsyncIterator[Result]:
        following: Mapping[str, str] | None = {**FIRST, **query}
        while following is not None:
            found = await self.run(page(following))
            for item in found.items:
                yield item
            following = found.next_query

    async def _send(self, operation: ApiOperation[Result]) -> Result:
        response = await self._http.send(self._request(operation))
        if not response.is_success:
            raise error_from(response)
        return operation.result(response)

    async def _open(self, operation: ApiOperation[None]) -> httpx.Response:
        """Return the response to an operation whose body has not been read."""
        response = await self._http.send(self._request(operation), stream=True)
        if not response.is_success:
            async with aclosing(response):
                await response.aread()
                raise error_from(response)
        return response

    def _request(self, operation: ApiOperation[Result]) -> httpx.Request:
        return self._http.build_request(**operation.arguments)

    async def _repeat(self, call: Callable[[], Awaitable[Result]]) -> Result:
        """Return what `call` returns, after as many attempts as it takes within the time for them."""

        async def attempt() -> Result:
            return await call()

        try:
            return await AsyncRetrying(**retry_options(self._retry_seconds))(attempt)
        except httpx.TransportError as error:
            raise UnreachableServerError(unreachable(self._http.base_url, error)) from error
