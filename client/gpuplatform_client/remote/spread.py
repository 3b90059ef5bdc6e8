"""A function of many items, computed by the tasks of one array.

A data folder that is made for it has function and items, and the tasks leave what came of them there; it is deleted in
the end.
"""

import asyncio
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import fields
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar
from uuid import uuid4

from gpuplatform_client.async_client import AsyncClient
from gpuplatform_client.errors import ApiError, ClientError
from gpuplatform_client.models.arrays import ArrayInfo, ArraySpec
from gpuplatform_client.models.platform import DataFolder, LaunchSpec, MountSpec
from gpuplatform_client.operations.lookups import completed
from gpuplatform_client.remote.blocking import blocking
from gpuplatform_client.remote.calls import Raised, RemoteError, read_outcomes, results_of, task_calls, task_command
from gpuplatform_client.remote.sessions import OWN, UNFIT, RemotePythonError, platform_login

Result = TypeVar("Result")
POLL_SECONDS: Final = 1.0
CLEAN_UP_SECONDS: Final = 60.0  # in which what was cancelled ends
TASKS_EACH: Final = 4  # of each that runs at once, so that none ends long after the others
DOWNLOADS: Final = 8  # at once
NO_PROGRAM: Final = 127  # the shell's exit code


async def async_map(
    function: Callable[[Any], Result],
    items: Iterable[Any],
    *,
    image: str,
    max_parallel: int = 4,
    chunksize: int | None = None,
    retries: int = 0,
    return_exceptions: bool = False,
    start_timeout: float | None = None,
    url: str = "",
    token: str = "",
    **amounts: Any,
) -> list[Result | Exception]:
    """Return what the function returns of each item, in order, computed by an array of which so many tasks run at once.

    A task has `chunksize` items, by default so many that there are four tasks for each that runs at once. One that
    fails is started again `retries` times. `amounts` are fields of `LaunchSpec`, such as `fgpu`, `time_limit`.
    The first exception is raised once all are done, or with `return_exceptions` each is returned in its place; a note
    names the item. Raises RemotePythonError, TimeoutError where no task starts by `start_timeout`, and ClientError.
    """
    if unknown := amounts.keys() - ({each.name for each in fields(LaunchSpec)} - UNFIT - {"cluster"}):
        raise TypeError(f"A map has no {', '.join(sorted(unknown))}.")
    if chunksize is not None and chunksize < 1:
        raise ValueError("chunksize is one at least.")
    given = list(items)
    if not given:
        return []
    size = chunksize or -(-len(given) // (TASKS_EACH * max(1, max_parallel)))
    chunks = [given[start : start + size] for start in range(0, len(given), size)]
    login, calls, name = platform_login(url, token), task_calls(function, chunks), f"map-{uuid4().hex[:12]}"
    mounts = (*(amounts.pop("mounts", None) or ()), MountSpec(folder=name))
    command, most = task_command(f"/home/work/{name}", OWN), max(1, max_parallel)
    tasks = {"tasks": f"0-{len(chunks) - 1}", "max_parallel": most, "retries": retries}
    spec = ArraySpec(**({"name": name} | amounts | tasks), image=image, command=command, mounts=mounts)
    with TemporaryDirectory() as directory:
        async with AsyncClient(login.url, login.token) as client:
            spread = _SpreadCall(client, Path(directory), name)
            try:
                await spread.begin(spec, calls)
                await spread.follow(start_timeout)
                outcomes = await spread.outcomes(chunks)
            finally:
                await spread.clear_away()
    return results_of(outcomes, return_exceptions=return_exceptions)


def map(function: Callable[[Any], Result], items: Iterable[Any], **options: Any) -> list[Result | Exception]:
    """Return what the function returns of each item, in order, computed by the tasks of an array; see `async_map`."""
    return blocking(async_map(function, items, **options))


class _SpreadCall:
    """The array of a call, and the folder that its tasks share with this process."""

    def __init__(self, client: AsyncClient, directory: Path, name: str) -> None:
        self._client, self._directory, self._name = client, directory, name
        self._folder: asyncio.Future[DataFolder] | None = None  # being made, or made
        self._array: asyncio.Future[ArrayInfo] | None = None

    async def begin(self, spec: ArraySpec, calls: bytes) -> None:
        """Make the folder, and submit the array. Cancelled, it knows what it has asked for."""
        whole = completed(spec, [image async for image in self._client.images()])
        self._folder = asyncio.ensure_future(self._client.create_folder(self._name))
        folder = await asyncio.shield(self._folder)
        source = self._directory / "calls"
        source.write_bytes(calls)
        await self._client.upload(folder.id, source, "calls")
        assert isinstance(whole, ArraySpec)
        self._array = asyncio.ensure_future(self._client.submit_array(whole))
        await asyncio.shield(self._array)

    async def follow(self, start_timeout: float | None) -> None:
        """Return once all tasks have ended. Raises RemotePythonError and TimeoutError."""
        begun, has_warned, has_checked = asyncio.get_running_loop().time(), False, False
        while not (array := await self._state()).is_over:
            counts = array.counts
            has_started = counts.running + counts.succeeded + counts.failed > 0
            waited = asyncio.get_running_loop().time() - begun
            if start_timeout is not None and not has_started and waited > start_timeout:
                raise TimeoutError(f"The start of the first task took more than {start_timeout:g} s.")
            if counts.failed and not has_checked:
                await self._check_python()
                has_checked = True
            if array.state == "HELD" and not has_warned:
                sys.stderr.write(f"Array {array.id} is held, and goes on once it is released: {array.reason}\n")
                has_warned = True
            await asyncio.sleep(POLL_SECONDS)
        if array.counts.failed:
            await self._check_python()

    async def outcomes(self, chunks: Sequence[Sequence[Any]]) -> list[Any]:
        """Return what came of each item."""
        turns = asyncio.Semaphore(DOWNLOADS)

        async def of_task(index: int) -> list[Any]:
            async with turns:
                data = await self._read(f"result-{index}")
            if data is not None:
                return read_outcomes(data)
            return [Raised(await self._without_result(index)) for _ in chunks[index]]

        found = await asyncio.gather(*(of_task(index) for index in range(len(chunks))))
        outcomes = [outcome for part in found for outcome in part]
        for index, (item, outcome) in enumerate(
            zip((item for chunk in chunks for item in chunk), outcomes, strict=True)
        ):
            if isinstance(outcome, Raised):
                outcome.error.add_note(f"This is of item {index}: {_short(item)}")
        return outcomes

    async def clear_away(self) -> None:
        """Cancel the array unless it has ended, and delete the folder once no task has it any more."""
        folder, array = await _made(self._folder), await _made(self._array)
        if folder is None:
            return
        try:
            async with asyncio.timeout(CLEAN_UP_SECONDS):
                if array is not None and not (await self._state()).is_over:
                    await self._client.cancel_array(array.id)
                    while not (await self._state()).is_over:
                        await asyncio.sleep(POLL_SECONDS)
                await self._client.delete_folder(folder.id)
                await self._client.call("POST", f"folders/{folder.id}/delete-forever/")
        except (ClientError, TimeoutError) as error:
            sys.stderr.write(
                f"Delete the data folder {self._name} yourself once the array of this name has ended: {error}\n"
            )

    async def _state(self) -> ArrayInfo:
        assert self._array is not None
        return await self._client.array((await self._array).id)

    async def _check_python(self) -> None:
        if found := await self._read("python"):
            raise RemotePythonError(
                f"Here is Python {OWN}, in the session Python {found.decode()}: functions need the same on both."
            )

    async def _without_result(self, index: int) -> ClientError:
        assert self._array is not None
        task = await self._client.array_task((await self._array).id, index)
        if task.exit_code == NO_PROGRAM:
            return RemotePythonError(
                f"Here is Python {OWN}, in the session no Python: functions need the same on both."
            )
        return RemoteError(f"Task {index} ended before a result: {task.reason or f'exit code {task.exit_code}'}")

    async def _read(self, path: str) -> bytes | None:
        """Return a file of the folder; None where there is none."""
        assert self._folder is not None
        target = self._directory / path
        try:
            await self._client.download((await self._folder).id, path, target)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise
        data = target.read_bytes()
        target.unlink()
        return data


async def _made(asked: asyncio.Future[Result] | None) -> Result | None:
    """Return what was asked for; None where nothing was, or that was refused."""
    if asked is not None:
        with suppress(ClientError):
            return await asked
    return None


def _short(item: Any) -> str:
    try:
        text = repr(item)
    except Exception:
        text = f"a {type(item).__name__}"
    return text if len(text) <= 200 else f"{text[:200]}..."
