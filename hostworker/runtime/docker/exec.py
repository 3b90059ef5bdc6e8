"""Running a program in a container of the Docker Engine, bounded in time and output: the container may be hostile."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from engine.engine import Engine, EngineConnectionError, ExecError
from engine.run import run
from hostworker.runtime_protocol import EngineUnreachableError, ExecResult, ExecutionError

TIMEOUT_SECONDS: Final = 20.0  # until the program must have ended
OUTPUT_LIMIT: Final = 64 * 1024  # bytes; what comes after is not read


def execute(engine_url: str, container_id: str, command: Sequence[str], environment: Mapping[str, str]) -> ExecResult:
    """Run the program as the container's own user, in its own folder; for threads without an event loop.

    Raises ExecutionError and EngineUnreachableError.
    """
    try:
        exit_code, output = asyncio.run(_run(Engine(engine_url), container_id, command, environment))
    except TimeoutError as error:
        raise ExecutionError("A program in the container did not end in time.") from error
    except EngineConnectionError as error:
        raise EngineUnreachableError(str(error)) from error
    except ExecError as error:
        raise ExecutionError(str(error)) from error
    return ExecResult(exit_code=exit_code, output=output.decode(errors="replace"))


async def _run(
    engine: Engine, container_id: str, command: Sequence[str], environment: Mapping[str, str]
) -> tuple[int, bytes]:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        return await run(engine, container_id, command, environment, limit=OUTPUT_LIMIT)
