"""What deployments answer is added up by token and calendar month (UTC); proxies are told when a budget is spent.

A sum is changed by one statement, so that a budget is crossed in one transaction, whatever number of processes store
what they have counted.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final, TypeVar

from django.db import connection, transaction
from django.db.models import Q

from deployments.models import DeploymentToken
from proxy.budgets import SpentBudget, TokenUse, UsageKey, month_end, month_of
from resources import clock
from sessions import notify

Key = TypeVar("Key", bound=UsageKey)
_ADD: Final = """
    INSERT INTO deployments_tokenusage AS kept ({owner}_id, month, requests, prompt_tokens, completion_tokens)
    SELECT owner.id, %s, added.requests, added.prompt, added.completion
    FROM unnest(%s::{type}[], %s::bigint[], %s::bigint[], %s::bigint[]) AS added (id, requests, prompt, completion)
    JOIN {table} owner ON owner.id = added.id
    ORDER BY owner.id
    ON CONFLICT ({owner}_id, month) DO UPDATE SET
        requests = kept.requests + excluded.requests,
        prompt_tokens = kept.prompt_tokens + excluded.prompt_tokens,
        completion_tokens = kept.completion_tokens + excluded.completion_tokens
    RETURNING {owner}_id, requests, prompt_tokens, completion_tokens
"""
_ADD_TO_TOKENS: Final = _ADD.format(owner="token", type="bigint", table="deployments_deploymenttoken")
_ADD_TO_DEPLOYMENTS: Final = _ADD.format(owner="deployment", type="text", table="deployments_deployment")


def store(uses: Mapping[UsageKey, TokenUse]) -> dict[int, SpentBudget]:
    """Add what tokens, and requests without one, have used; return what of tokens that have budgets is spent.

    Tokens and deployments that are gone are passed over. Raises Error, and then nothing is stored.
    """
    if not uses:
        return {}
    now = clock.now()
    of_tokens = {key: use for key, use in uses.items() if isinstance(key, int)}
    of_deployments = {key: use for key, use in uses.items() if isinstance(key, str)}
    with transaction.atomic():
        sums = _added(_ADD_TO_TOKENS, now, of_tokens)
        _added(_ADD_TO_DEPLOYMENTS, now, of_deployments)
        has_budget = Q(monthly_requests__gt=0) | Q(monthly_tokens__gt=0)
        limited = list(DeploymentToken.objects.filter(has_budget, pk__in=sums))
        for deployment in {
            each.deployment_id for each in limited if _has_just_spent(each, sums[each.pk], uses[each.pk])
        }:
            notify.publish_to_proxies({"deployment": deployment})
    until = month_end(now.timestamp())
    return {each.pk: SpentBudget(sums[each.pk].requests, sums[each.pk].tokens, until) for each in limited}


def _added(statement: str, now: datetime, uses: Mapping[Key, TokenUse]) -> dict[Key, TokenUse]:
    """Add these to this month's sums; return the sums."""
    if not uses:
        return {}
    columns = zip(*((key, *use) for key, use in uses.items()), strict=True)
    with connection.cursor() as cursor:
        cursor.execute(statement, [month_of(now).date(), *map(list, columns)])
        return {key: TokenUse(*used) for key, *used in cursor.fetchall()}


def spent_of(token: DeploymentToken, month_ends: float) -> SpentBudget:
    """Return what is spent of the budgets of a token that has its usage."""
    used: TokenUse = used_of(token)
    return SpentBudget(used.requests, used.tokens, month_ends)


def used_of(token: DeploymentToken) -> TokenUse:
    """Return what a token that has its usage has used in this month."""
    return TokenUse(*(getattr(token, f"used_{name}") for name in TokenUse._fields))


def budgets_of(token: DeploymentToken, used: TokenUse) -> list[tuple[str, int, int]]:
    """Return the name of each budget that the token has, how much that is, and what of it is used."""
    amounts = {"monthly_requests": used.requests, "monthly_tokens": used.tokens}
    return [(name, budget, amount) for name, amount in amounts.items() if (budget := getattr(token, name))]


def _has_just_spent(token: DeploymentToken, total: TokenUse, added: TokenUse) -> bool:
    """Return whether the token has spent a budget by what was added."""
    before = TokenUse(*(after - more for after, more in zip(total, added, strict=True)))
    pairs = zip(budgets_of(token, before), budgets_of(token, total), strict=True)
    return any(used < budget <= now_used for (_, budget, used), (_, _, now_used) in pairs)
