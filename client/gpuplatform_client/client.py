"""The client for programs without an event loop."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, TypeVar

import httpx
from httpx_sse import EventSource
from tenacity import Retrying

from gpuplatform_client import transfers
from gpuplatform_client.errors import UnreachableServerError, error_from
from gpuplatform_client.http.api_requests import ApiOperation, ApiStream, ResultPage
from gpuplatform_client.http.retries import RECONNECT_SECONDS, RETRY_SECONDS, retry_options, unreachable
from gpuplatform_client.http.streams import StreamPosition, check_stream
from gpuplatform_client.http.transport import REQUEST_SECONDS, api_url, request_headers
from gpuplatform_client.models.platform import IssuedToken
from gpuplatform_client.operations import platform as operations
from gpuplatform_client.operations.methods import ApiMethods
from gpuplatform_client.transfers import PartialDownload, UploadState

Result = TypeVar("Result")


class Client(ApiMethods):
    """The API of a platform, for programs without an event loop."""

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

    def items(self, operation: ApiOperation[ResultPage[Result]]) -> Iterator[Result]:
        """Yield the items of a list, page by page."""
        query: Mapping[str, str | int] | None = operation.query
        while query is not None:
            page = self.run(replace(operation, query=query))
            yield from page.items
            query = page.next_query

    def follow(self, stream: ApiStream[Result]) -> Iterator[Result]:
        """Yield what the events of a stream carry; a stream that breaks is opened again where it ended."""
        position = StreamPosition()
        while True:
            with closing(self._repeat(partial(self._open, stream.opened_from(position)))) as response:
                check_stream(response)
                try:
                    for event in EventSource(response).iter_sse():
                        if not event.data:  # the blank line behind a comment: no event, says the standard
                            continue
                        is_last = position.advance(event)
                        yield from stream.read(event)
                        if is_last:
                            return
                except httpx.TransportError:
                    pass
            time.sleep(RECONNECT_SECONDS)

    def login(self, email: str, password: str, code: str = "") -> IssuedToken:
        """Return a new token, which this client uses from now on; `code` is that of the second factor."""
        issued = self.run(operations.issue_token(email, password, code))
        self._http.headers.update(request_headers(issued.token))
        return issued

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
