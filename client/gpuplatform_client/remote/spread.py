"""A function of many items, computed by sessions that are launched for it."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from gpuplatform_client.remote.blocking import blocking
from gpuplatform_client.remote.calls import results_of
from gpuplatform_client.remote.sessions import AsyncSession

Result = TypeVar("Result")


async def async_map(
    function: Callable[[Any], Result],
    items: Iterable[Any],
    *,
    image: str,
    max_parallel: int = 4,
    return_exceptions: bool = False,
    **options: Any,
) -> list[Result | Exception]:
    """Return what the function returns of each item, in order, computed by up to so many sessions.

    Each session, launched with the options of `AsyncSession.launch`, takes the next item once it runs; all are ended.
    Exceptions of the function are as in `AsyncSession.map`; a session that ends meanwhile ends it all.
    """
    given = list(items)
    pending = iter(enumerate(given))
    outcomes: dict[int, Any] = {}
    starting: set[asyncio.Task[None] | None] = set()

    async def work() -> None:
        task = asyncio.current_task()
        starting.add(task)
        async with AsyncSession.launch(image, **options) as session:
            starting.discard(task)
            for index, item in pending:
                [outcomes[index]] = await session.carry_out(function, [((item,), {})], 1)
            if len(outcomes) == len(given):
                for late in filter(None, starting):  # that still wait for room
                    late.cancel()

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(max(1, max_parallel), len(given))):
                group.create_task(work())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return results_of((outcomes[index] for index in range(len(given))), return_exceptions=return_exceptions)


def map(function: Callable[[Any], Result], items: Iterable[Any], **options: Any) -> list[Result | Exception]:
    """Return what the function returns of each item, in order, computed by several sessions; see `async_map`."""
    return blocking(async_map(function, items, **options))
