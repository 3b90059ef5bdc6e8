"""Coroutines for programs without an event loop, and for notebooks, whose loop is busy with the cell."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

Result = TypeVar("Result")


def blocking(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Return what the coroutine returns; an interrupt cancels it, and it has cleaned up when this ends."""
    cancel: Future[Callable[[], object]] = Future()

    async def cancellable() -> Result:
        task, loop = asyncio.ensure_future(coroutine), asyncio.get_running_loop()
        cancel.set_result(lambda: loop.call_soon_threadsafe(task.cancel))
        return await task

    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(asyncio.run, cancellable())
        try:
            return running.result()
        except BaseException:
            if not running.done():
                with suppress(RuntimeError):  # it has ended since
                    cancel.result()()
            raise
