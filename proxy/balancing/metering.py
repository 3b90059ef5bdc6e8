"""What each token has used, and whether it may send more: its rate, and its budgets of the calendar month (UTC).

What comes without a token, where an address is public or in a browser, is counted for the deployment.

A process counts its own requests exactly, and learns each second what the control plane has stored of all processes.
Never is a request refused before the budget is spent; it may be exceeded by what other processes have admitted since
they were last heard of, and in tokens of a model by the requests under way.
"""

import time
from collections.abc import Callable, Mapping
from math import ceil
from typing import Final

from proxy.balancing.rates import TokenRates
from proxy.balancing.refusals import Refusal
from proxy.budgets import NOTHING_USED, SpentBudget, TokenUse, UsageKey, month_end
from proxy.counters import ConnectionCounters
from proxy.routes import ServiceToken

ONE_REQUEST: Final = TokenUse(requests=1)
ONE_LESS: Final = TokenUse(requests=-1)
NOT_COUNTED: Final = frozenset({Refusal.RATE, Refusal.BUDGET})  # refusals of requests that were not admitted

Report = Callable[[Mapping[UsageKey, TokenUse]], Mapping[int, SpentBudget]]


class TokenMeter:
    """Counts requests and tokens of models by the token of a service, or by the service where there is none."""

    def __init__(self, counters: ConnectionCounters, now: Callable[[], float] = time.time) -> None:
        self._rates = TokenRates(counters)
        self._now = now
        self._uses: dict[UsageKey, TokenUse] = {}  # since the last report
        self._spent: dict[UsageKey, SpentBudget] = {}  # of tokens with a budget, at the last report

    def admit(self, token: ServiceToken) -> tuple[Refusal, int] | None:
        """Count a request and return None, or return why it is refused and after how many seconds to come again."""
        if seconds := self._rates.admit(token):
            return Refusal.RATE, seconds
        use = self._uses.get(token.pk, NOTHING_USED)
        if token.has_budget:
            now = self._now()
            spent = self._spent_of(token, use, now)
            if _is_used_up(token.monthly_requests, spent.requests + use.requests) or _is_used_up(
                token.monthly_tokens, spent.tokens + use.tokens
            ):
                return Refusal.BUDGET, max(1, ceil(spent.until - now))
        self.add(token.pk, ONE_REQUEST)
        return None

    def give_back(self, key: UsageKey, why: Refusal) -> None:
        """Count a request less that was refused after all."""
        if why not in NOT_COUNTED:
            self.add(key, ONE_LESS)

    def add(self, key: UsageKey, used: TokenUse) -> None:
        """Count a request, or what a response has cost."""
        self._uses[key] = self._uses.get(key, NOTHING_USED).plus(used)

    def report(self, report: Report) -> None:
        """Tell what was counted since, and learn what is spent; to be called once a second."""
        self._rates.forget()
        uses, self._uses = self._uses, {}
        for pk, use in uses.items():
            if spent := self._spent.get(pk):
                self._spent[pk] = spent.plus(use)
        now = self._now()
        self._spent = {pk: each for pk, each in (self._spent | dict(report(uses))).items() if each.until > now}

    def _spent_of(self, token: ServiceToken, use: TokenUse, now: float) -> SpentBudget:
        """Return what is known to be spent besides `use`: nothing of what is counted here is in it twice."""
        known = self._spent.get(token.pk)
        if known is None or known.until <= now:
            known = token.spent if token.spent.until > now else SpentBudget(0, 0, month_end(now))
        elif token.spent.until > now and use == NOTHING_USED:
            known = max(known, token.spent)
        self._spent[token.pk] = known
        return known


def _is_used_up(budget: int, spent: int) -> bool:
    return 0 < budget <= spent
