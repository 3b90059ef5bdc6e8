"""What each token has used, and whether it may send more: its rate, and its budgets of the calendar month (UTC).

What comes without a token, where an address is public or in a browser, is counted for the deployment.

A process counts its own requests exactly, and learns each second what the control plane has stored of all processes.
Never is a request refused before the budget is spent; it may be exceeded by what other processes have admitted since
they were last heard of, and in tokens of a model by the requests under way.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from math import ceil
from typing import Final

from proxy.balancing.rates import TokenRates
from proxy.balancing.refusals import Refusal
from proxy.budgets import NOTHING_USED, SpentBudget, TokenUse, UsageKey, month_end
from proxy.counters import ConnectionCounters
from proxy.routes import ServiceToken

NOT_COUNTED: Final = frozenset({Refusal.RATE, Refusal.BUDGET})  # refusals of requests that were not admitted

Report = Callable[[Mapping[UsageKey, TokenUse]], Mapping[int, SpentBudget]]


class TokenMeter:
    """Counts requests and tokens of models by the token of a service, or by the service where there is none."""

    def __init__(self, counters: ConnectionCounters, now: Callable[[], float] = time.time) -> None:
        self._rates = TokenRates(counters)
        self._now = now
        self._requests: defaultdict[UsageKey, int] = defaultdict(int)  # since the last report
        self._uses: dict[UsageKey, TokenUse] = {}  # what they have cost besides, since then
        self._spent: dict[UsageKey, SpentBudget] = {}  # of tokens with a budget, at the last report

    def admit(self, token: ServiceToken) -> tuple[Refusal, int] | None:
        """Count a request and return None, or return why it is refused and after how many seconds to come again."""
        if seconds := self._rates.admit(token):
            return Refusal.RATE, seconds
        if token.has_budget:
            use, now = self._use(token.pk), self._now()
            spent = self._spent_of(token, use, now)
            if _is_used_up(token.monthly_requests, spent.requests + use.requests) or _is_used_up(
                token.monthly_tokens, spent.tokens + use.tokens
            ):
                return Refusal.BUDGET, max(1, ceil(spent.until - now))
        self._requests[token.pk] += 1
        return None

    def count(self, key: UsageKey) -> None:
        """Count a request without a token."""
        self._requests[key] += 1

    def give_back(self, key: UsageKey, why: Refusal) -> None:
        """Count a request less that was refused after all."""
        if why not in NOT_COUNTED:
            self._requests[key] -= 1

    def add(self, key: UsageKey, used: TokenUse) -> None:
        """Count what a response has cost."""
        self._uses[key] = self._uses.get(key, NOTHING_USED).plus(used)

    def report(self, report: Report) -> None:
        """Tell what was counted since, and learn what is spent; to be called once a second."""
        self._rates.forget()
        uses = {key: self._use(key) for key in self._requests.keys() | self._uses.keys()}
        self._requests.clear()
        self._uses.clear()
        for pk, use in uses.items():
            if spent := self._spent.get(pk):
                self._spent[pk] = spent.plus(use)
        now = self._now()
        self._spent = {pk: each for pk, each in (self._spent | dict(report(uses))).items() if each.until > now}

    def _use(self, key: UsageKey) -> TokenUse:
        return self._uses.get(key, NOTHING_USED).plus(TokenUse(requests=self._requests.get(key, 0)))

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
