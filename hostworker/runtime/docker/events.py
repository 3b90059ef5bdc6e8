"""Container exits from the Docker Engine's event stream."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from docker.api import APIClient
from docker.types import CancellableStream

from hostworker.runtime.docker.states import exit_from_event, key_of
from hostworker.runtime.engine_requests import translated
from hostworker.runtime_protocol import ContainerState, EngineUnreachableError

STOPPED_CHECK_SECONDS: Final = 0.2


def exits_since(
    since_ns: int,
    make_client: Callable[[], APIClient],
    labels: Sequence[str],
    stopped: threading.Event,
    on_memory_kill: Callable[[str, int], None],
) -> Iterator[ContainerState]:
    """Yield the state of each container with the labels that exits after `since_ns` (Unix time), until `stopped`.

    `on_memory_kill` is called as for Runtime.exits. Raises EngineUnreachableError when the stream breaks.
    """
    finished = threading.Event()
    filters = {"type": ["container"], "event": ["die", "oom"], "label": list(labels)}
    with translated(EngineUnreachableError):
        client = make_client()
        # The engine counts `since` in whole seconds and replays from its own memory what lies between.
        stream = client.events(since=since_ns // 1_000_000_000, filters=filters, decode=True)
    threading.Thread(target=_close_once_stopped, args=(stream, stopped, finished), daemon=True).start()
    out_of_memory: set[str] = set()
    try:
        with translated(EngineUnreachableError):
            for event in stream:
                container_id = str(event["Actor"]["ID"])
                if event["timeNano"] < since_ns:
                    continue
                if event["Action"] == "oom":
                    out_of_memory.add(container_id)
                    if key := key_of(event["Actor"]["Attributes"]):
                        on_memory_kill(*key)
                elif state := exit_from_event(client, event, container_id in out_of_memory):
                    out_of_memory.discard(container_id)
                    yield state
    finally:
        finished.set()
    if not stopped.is_set():
        raise EngineUnreachableError("The container engine closed its event stream.")


def _close_once_stopped(
    stream: "CancellableStream[dict[str, Any]]", stopped: threading.Event, finished: threading.Event
) -> None:
    """Close the stream when `stopped` or `finished` is set, which wakes the reader from its blocking read."""
    while not stopped.wait(STOPPED_CHECK_SECONDS) and not finished.is_set():
        pass
    with suppress(AttributeError, OSError):  # the SDK looks for the socket, which is gone once the stream has ended
        stream.close()
