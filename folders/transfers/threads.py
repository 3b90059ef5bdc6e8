"""The threads in which transfers read and write files: a file system that hangs holds up transfers alone."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

Result = TypeVar("Result")

_threads: Final = ThreadPoolExecutor(16, "transfer")


def in_thread(function: Callable[..., Result], *arguments: object) -> "asyncio.Future[Result]":
    """Call the function in a thread; cancelling the future does not end the call."""
    return asyncio.get_running_loop().run_in_executor(_threads, function, *arguments)
