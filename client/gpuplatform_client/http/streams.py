"""Server-sent events of a session: its output, and its changes.

A stream that breaks is opened again with the id of its last event (`Last-Event-ID`), so that nothing is lost or
repeated.
"""

import json

import httpx
from httpx_sse import ServerSentEvent

from gpuplatform_client.errors import UnreachableServerError, no_api
from gpuplatform_client.models.platform import ComputeSession, TimelineEvent

END = "end"  # the event after which nothing follows
READY = "ready"  # the first event of a stream of all sessions


class StreamPosition:
    """How far a stream of events has been read."""

    def __init__(self) -> None:
        self._last_id = ""

    @property
    def headers(self) -> dict[str, str]:
        """Of the request that goes on from here."""
        known = {"Last-Event-ID": self._last_id} if self._last_id else {}
        return {"Accept": "text/event-stream", "Cache-Control": "no-store", **known}

    def advance(self, event: ServerSentEvent) -> bool:
        """Go on behind the event; return whether it is the last one."""
        self._last_id = event.id or self._last_id
        return event.event == END


def check_stream(response: httpx.Response) -> None:
    """Raise UnreachableServerError unless the response is a stream: what is something else would be asked for ever."""
    if not response.headers.get("Content-Type", "").startswith("text/event-stream"):
        raise UnreachableServerError(no_api(response))


def read_output(event: ServerSentEvent) -> list[str]:
    """Return the piece of output that an event carries; none at the end."""
    return [] if event.event == END else [json.loads(event.data)]


def read_session(event: ServerSentEvent) -> list[ComputeSession]:
    """Return the session as it is after the event."""
    data = json.loads(event.data)
    return [ComputeSession.model_validate(data if event.event == END else data["session"])]


def read_timeline_event(event: ServerSentEvent) -> list[TimelineEvent]:
    """Return the event of a session's timeline; none where something else has changed."""
    found = None if event.event == END else json.loads(event.data)["event"]
    return [TimelineEvent.model_validate(found)] if found else []


def read_changed_session(event: ServerSentEvent) -> list[ComputeSession | None]:
    """Return the session that has changed; None where the stream says that it is ready."""
    return [None] if event.event == READY else [*read_session(event)]
