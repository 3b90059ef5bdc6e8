"""The client for programs without an event loop."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, TypeVar

import httpx
from httpx_sse import EventSource, ServerSentEvent
from tenacity import Retrying

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


class Client:
    """The API of a platform. Requests that do no harm twice are repeated for `retry_seconds`; see `errors`."""

    def __init__(self, url: str, token: str = "", *, retry_seconds: float = RETRY_SECONDS) -> None:
        self._http = httpx.Client(base_url=api_url(url), headers=request_headers(token), timeout=REQUEST_SECONDS)
        self._retry_seconds = retry_seconds

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def run(self, operation: ApiOperation[Result]) -> Result:
        """Carry out an operation and return its result. Raises ApiError and UnreachableServerError."""
        if operation.is_repeatable:
            return self._repeat(lambda: self._send(operation))
        try:
            return self._send(operation)
        except httpx.TransportError as error:
            raise UnreachableServerError(unreachable(self._http.base_url, error)) from error

    def login(self, email: str, password: str, code: str = "") -> IssuedToken:
        """Return a new token, which this client uses from now on; `code` is that of the second factor."""
        issued = self.run(operations.issue_token(email, password, code))
        self._http.headers.update(request_headers(issued.token))
        return issued

    def logout(self) -> None:
        """Revoke the token."""
        self.run(operations.revoke_token())

    def account(self) -> AccountInfo:
        """Return the user whose token is used."""
        return self.run(operations.account())

    def images(self) -> Iterator[ImageVersion]:
        """Yield the images that may be launched."""
        return self._items(operations.images)

    def sessions(self, **query: str) -> Iterator[ComputeSession]:
        """Yield sessions, newest first; `tab`, `status`, `name` and `owner` select."""
        return self._items(operations.sessions, query)

    def session(self, session_id: str) -> ComputeSession:
        """Return a session."""
        return self.run(operations.session(session_id))

    def launch(self, spec: LaunchSpec) -> list[ComputeSession]:
        """Launch sessions and return them; repeated after a broken connection, the request launches nothing twice."""
        return self.run(operations.launch(spec))

    def estimate(self, spec: LaunchSpec) -> LaunchEstimate:
        """Return when a launch would start."""
        return self.run(operations.estimate(spec))

    def terminate(self, session_id: str) -> ComputeSession:
        """End a session."""
        return self.run(operations.terminate(session_id))

    def resize(self, session_id: str, spec: ResizeSpec) -> ComputeSession:
        """Have a running session hold other amounts; `resizing` of the session says until when that is under way."""
        return self.run(operations.resize(session_id, spec))

    def session_events(self, session_id: str) -> Iterator[TimelineEvent]:
        """Yield the events of a session, oldest first."""
        return self._items(lambda query: operations.session_events(session_id, query))

    def logs(self, session_id: str, tail: int = 500) -> str:
        """Return the last `tail` lines of output."""
        return self.run(operations.logs(session_id, tail))

    def follow_logs(self, session_id: str) -> Iterator[str]:
        """Yield output in pieces, from its beginning, until the session has ended."""
        return self._follow(operations.log_path(session_id), read_output)

    def watch(self, session_id: str) -> Iterator[ComputeSession]:
        """Yield the session now and after every change, until it has ended."""
        return self._follow(operations.watch_path(session_id), read_session)

    def usage(self, session_id: str) -> UsageWindow:
        """Return the use of the last hour."""
        return self.run(operations.usage(session_id))

    def open_app(self, session_id: str, app: str) -> AppState:
        """Open an app, or `p8080` for a port."""
        return self.run(operations.open_app(session_id, app))

    def folders(self) -> Iterator[DataFolder]:
        """Yield the data folders that may be read."""
        return self._items(operations.folders)

    def create_folder(self, name: str) -> DataFolder:
        """Create a data folder."""
        return self.run(operations.create_folder(name))

    def delete_folder(self, folder_id: str) -> None:
        """Move a data folder to the trash."""
        self.run(operations.delete_folder(folder_id))

    def entries(self, folder_id: str, path: str = "") -> Iterator[EntryInfo]:
        """Yield what is in a directory of a folder."""
        return self._items(lambda query: operations.entries(folder_id, query), {"path": path})

    def projects(self) -> Iterator[ProjectInfo]:
        """Yield the user's projects."""
        return self._items(operations.projects)

    def project_members(self, project_id: int) -> Iterator[ProjectMember]:
        """Yield the members of a project."""
        return self._items(lambda query: operations.project_members(project_id, query))

    def add_project_member(self, project_id: int, email: str, *, role: str = "member") -> ProjectMember:
        """Make an account a member, or with the role "manager" a manager."""
        return self.run(operations.add_project_member(project_id, email, role))

    def change_project_member(self, project_id: int, member_id: int, *, role: str) -> ProjectMember:
        """Make a member a manager, or a manager a member."""
        return self.run(operations.change_project_member(project_id, member_id, role))

    def remove_project_member(self, project_id: int, member_id: int) -> None:
        """End a membership."""
        self.run(operations.remove_project_member(project_id, member_id))

    def invite_to_project(self, project_id: int, email: str) -> None:
        """Have somebody without an account mailed a link, which makes one that is a member."""
        self.run(operations.invite_to_project(project_id, email))

    def upload(self, folder_id: str, source: Path, path: str, *, overwrites: bool = False) -> None:
        """Upload a file to `path` of a folder; after a broken connection it goes on where it ended (tus 1.0.0)."""
        with source.open("rb") as file:
            upload = self.run(transfers.create_upload(folder_id, file, path, overwrites=overwrites))
            while upload.offset < upload.length:
                upload = self._repeat(partial(self._append, upload, file))

    def download(self, folder_id: str, path: str, target: Path) -> None:
        """Download a file of a folder; after a broken connection it goes on. `target` appears once it is whole."""
        with PartialDownload(target) as file:
            while not file.is_whole:
                self._repeat(lambda: self._fetch(operations.download(folder_id, path, file.headers), file))

    def _append(self, upload: UploadState, file: BinaryIO) -> UploadState:
        at = self._send(transfers.find_offset(upload))
        return at if at.offset > upload.offset else self._send(transfers.append(at, file))

    def _fetch(self, operation: ApiOperation[None], file: PartialDownload) -> None:
        with closing(self._open(operation)) as response, file.receiving(response):
            for piece in response.iter_bytes():
                file.write(piece)

    def _follow(self, path: str, read: Callable[[ServerSentEvent], list[Result]]) -> Iterator[Result]:
        position = StreamPosition()
        while True:
            operation = operations.stream(path, position.headers)
            with closing(self._repeat(partial(self._open, operation))) as response:
                check_stream(response)
                try:
                    for event in EventSource(response).iter_sse():
                        is_last = position.advance(event)
                        yield from read(event)
                        if is_last:
                            return
                except httpx.TransportError:
                    pass
            time.sleep(RECONNECT_SECONDS)

    def _items(
        self, page: Callable[[Mapping[str, str]], ApiOperation[ResultPage[Result]]], query: Mapping[str, str] = FIRST
    ) -> Iterator[Result]:
        following: Mapping[str, str] | None = {**FIRST, **query}
        while following is not None:
            found = self.run(page(following))
            yield from found.items
            following = found.next_query

    def _send(self, operation: ApiOperation[Result]) -> Result:
        response = self._http.send(self._request(operation))
        if not response.is_success:
            raise error_from(response)
        return operation.result(response)

    def _open(self, operation: ApiOperation[None]) -> httpx.Response:
        """Return the response to an operation whose body has not been read."""
        response = self._http.send(self._request(operation), stream=True)
        if not response.is_success:
            with closing(response):
                response.read()
                raise error_from(response)
        return response

    def _request(self, operation: ApiOperation[Result]) -> httpx.Request:
        return self._http.build_request(**operation.arguments)

    def _repeat(self, call: Callable[[], Result]) -> Result:
        """Return what `call` returns, after as many attempts as it takes within the time for them."""
        try:
            return Retrying(**retry_options(self._retry_seconds))(call)
        except httpx.TransportError as error:
            raise UnreachableServerError(unreachable(self._http.base_url, error)) from error
