"""When a request is repeated: after failures of the network, and while the platform asks for patience."""

from typing import Any

import httpx
from tenacity import RetryCallState, retry_if_exception, wait_random_exponential
from tenacity.stop import stop_base

from gpuplatform_client.errors import ApiError, OverloadedError

RETRY_SECONDS = 60.0  # for which a request is repeated by default
RECONNECT_SECONDS = 0.5  # before a stream that broke is opened again
TRANSIENT_STATUSES = frozenset({423, 502, 504})  # the earlier request of an upload is not over yet; a proxy's errors
KEY_IN_USE = "idempotency_key_in_use"  # the earlier request of a launch is not over yet
MAX_WAIT_SECONDS = 10.0
HOPELESS = (httpx.UnsupportedProtocol, httpx.LocalProtocolError)  # the request cannot be sent as it is
_exponential = wait_random_exponential(multiplier=0.2, max=MAX_WAIT_SECONDS)


def is_transient(error: BaseException) -> bool:
    """Return whether the same request may succeed later."""
    if isinstance(error, ApiError):
        return isinstance(error, OverloadedError) or error.status in TRANSIENT_STATUSES or error.code == KEY_IN_USE
    return isinstance(error, httpx.TransportError) and not isinstance(error, HOPELESS)


def wait_seconds(state: RetryCallState) -> float:
    """Return how long to wait before the next attempt: what the response asks for, else exponentially with jitter."""
    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, OverloadedError) and error.retry_after is not None:
        return error.retry_after
    return _exponential(state)


class StopAfterSeconds(stop_base):
    """Give up where the next attempt would begin later than this many seconds after the first has failed.

    Its own length does not count: pieces of files take long on slow networks. For one call, as it remembers that.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._failed_at: float | None = None

    def __call__(self, retry_state: RetryCallState) -> bool:
        """Return whether to give up."""
        now = retry_state.outcome_timestamp or 0.0
        self._failed_at = now if self._failed_at is None else self._failed_at
        return now - self._failed_at + retry_state.upcoming_sleep > self._seconds


def retry_options(seconds: float) -> dict[str, Any]:
    """Return the arguments of `tenacity.Retrying` and `AsyncRetrying`."""
    return {
        "retry": retry_if_exception(is_transient),
        "wait": wait_seconds,
        "stop": StopAfterSeconds(seconds),
        "reraise": True,
    }


def unreachable(url: httpx.URL, error: httpx.TransportError) -> str:
    """Return the message for a server that gave no response."""
    return f"{url.host} cannot be reached: {error or type(error).__name__}"
