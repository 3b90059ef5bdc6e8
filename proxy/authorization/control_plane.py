"""What the data plane asks the control plane: the only calls that leave the process."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from proxy.authorization.signing import Grant
from proxy.budgets import SpentBudget, TokenUse, UsageKey

DURATION_BOUNDS: Final = (  # seconds, of the counts in `ServiceFigures.durations`
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0),
)

LATENCY_GROWTH: Final = 1.1  # of the bounds of `ServiceFigures.latencies`: quantiles are known within 10 %
SHORTEST_LATENCY: Final = 0.0005  # seconds
LAST_LATENCY_BIN: Final = 150  # about 800 seconds, and all that took longer
_LATENCY_BOUNDS: Final = [SHORTEST_LATENCY * LATENCY_GROWTH**number for number in range(LAST_LATENCY_BIN)]


def latency_bin(seconds: float) -> int:
    """Return the number of the narrow range that a duration is in."""
    return bisect_left(_LATENCY_BOUNDS, seconds)


def latency_bound(number: int) -> float:
    """Return the longest duration, in seconds, of the range with this number."""
    return float(SHORTEST_LATENCY * LATENCY_GROWTH**number)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceFigures:
    """What one replica of a service has served in this process since the last figures, and how much it does now.

    What reached no replica is in figures with the session "".
    """

    deployment: str  # id
    session: str  # id of the replica's session
    revision: int = 0  # number of what it runs
    outstanding: int = 0  # requests, streams and websockets under way now; of the session "": requests that wait
    requests: int = 0  # that ended, whatever their response
    errors: int = 0  # of these: 5xx, or failed
    rejected: int = 0  # answered here with 429 or 503; if a replica has ended, it has an error besides
    durations: Sequence[int] = ()  # requests by DURATION_BOUNDS, each up to its bound alone, and one that took longer
    latencies: Mapping[int, int] = field(default_factory=dict)  # requests by `latency_bin`
    seconds: float = 0.0  # sum of the durations
    sent_bytes: int = 0  # of responses, websockets excluded
    prompt_tokens: int = 0  # that models have read, as far as their responses say so
    completion_tokens: int = 0  # that they have written


class ControlPlane(Protocol):
    """Knows who may use which endpoint; the platform's database stands behind it."""

    async def redeem(self, ticket: str, label: str, state_digest: str) -> tuple[Grant, str] | None:
        """Use up a ticket; return its grant and the path to redirect to, None if it is not valid for this endpoint.

        `state_digest` is the digest of the nonce that the browser kept when it was redirected to the platform.
        """
        ...

    async def look(self, label: str) -> None:
        """Have the host look why a READY app refuses connections; its route's condition says what was found."""
        ...

    def used(self, session: str) -> None:
        """Record that an app of the session is in use; called about once a second while it is."""
        ...

    def wake(self, deployment: str) -> None:
        """Have the deployment launch a replica, if it has none; called every two seconds while requests find none."""
        ...

    def served(self, figures: Sequence[ServiceFigures]) -> None:
        """Record what was served; called about once a second while there are services, with `figures` empty perhaps.

        A replica is in them while requests are under way at it, and once more after the last of these has ended.
        """
        ...

    def metered(self, uses: Mapping[UsageKey, TokenUse]) -> Mapping[int, SpentBudget]:
        """Record what tokens, and requests without one, have used; called about once a second, without any perhaps.

        Return what is known to be spent of budgets, with all that this process has told.
        """
        ...
