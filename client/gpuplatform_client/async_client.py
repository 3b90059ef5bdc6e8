"""The client for programs with an event loop: with the methods of `client.Client`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, TypeVar

import httpx
from httpx_sse import EventSource
from tenacity import AsyncRetrying

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


class AsyncClient(ApiMethods):
    """The API of a platform, for programs with an event loop."""

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

    async def items(self, operation: ApiOperation[ResultPage[Result]]) -> AsyncIterator[Result]:
        """Yield the items of a list, page by page."""
        query: Mapping[str, str | int] | None = operation.query
        while query is not None:
            page = await self.run(replace(operation, query=query))
            for item in page.items:
                yield item
            query = page.next_query

    async def follow(self, stream: ApiStream[Result]) -> AsyncIterator[Result]:
        """Yield what the events of a stream carry; a stream that breaks is opened again where it ended."""
        position = StreamPosition()
        while True:
            async with aclosing(await self._repeat(partial(self._open, stream.opened_from(position)))) as response:
                check_stream(response)
                try:
                    async for event in EventSource(response).aiter_sse():
                        if not event.data:  # the blank line behind a comment: no event, says the standard
                            continue
                        is_last = position.advance(event)
                        for item in stream.read(event):
                            yield item
                        if is_last:
                            return
                except httpx.TransportError:
                    pass
            await asyncio.sleep(RECONNECT_SECONDS)

    async def login(self, email: str, password: str, code: str = "") -> IssuedToken:
        """Return a new token, which this client uses from now on; `code` is that of the second factor."""
        issued = await self.run(operations.issue_token(email, password, code))
        self._http.headers.update(request_headers(issued.token))
        return issued

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
