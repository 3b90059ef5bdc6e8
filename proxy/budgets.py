"""What tokens of services have used, and what of their monthly budgets is spent. Pure."""

from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

UsageKey = int | str  # whose use is counted: a token, by its primary key; or a deployment, of requests without one

LONGER_THAN_A_MONTH: Final = timedelta(days=32)


class TokenUse(NamedTuple):
    """What a token of a service, or one response, has used."""

    requests: int = 0
    prompt_tokens: int = 0  # that a model has read
    completion_tokens: int = 0  # that it has written

    @property
    def tokens(self) -> int:
        """Those that a model has read and written."""
        return self.prompt_tokens + self.completion_tokens

    def plus(self, other: "TokenUse") -> "TokenUse":
        """Return the sum."""
        return TokenUse(
            self.requests + other.requests,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
        )


NOTHING_USED: Final = TokenUse()


class SpentBudget(NamedTuple):
    """What of a token's budgets is spent in a month."""

    requests: int = 0
    tokens: int = 0
    until: float = 0.0  # Unix seconds, when the month ends; 0: not known

    def plus(self, use: TokenUse) -> "SpentBudget":
        """Return what is spent with this use."""
        return SpentBudget(self.requests + use.requests, self.tokens + use.tokens, self.until)


UNKNOWN: Final = SpentBudget()


def month_of(at: datetime) -> datetime:
    """Return when the calendar month (UTC) began that has this moment."""
    return at.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def month_end(at: float) -> float:
    """Return when the calendar month (UTC) ends that has this moment; both in Unix seconds."""
    return month_of(month_of(datetime.fromtimestamp(at, UTC)) + LONGER_THAN_A_MONTH).timestamp()
