"""What tokens of deployments use is added up by calendar month (UTC); proxies are told when a budget is spent.

A sum is changed by one statement, so that a budget is crossed in one transaction, whatever number of processes store
what they have counted.
"""

from collections.abc import Mapping
from typing import Final

from django.db import connection, transaction
from django.db.models import Q

from deployments.models import DeploymentToken
from proxy.budgets import SpentBudget, TokenUse, month_end, month_of
from resources import clock
from sessions import notify

_ADD: Final = """
    INSERT INTO deployments_tokenusage AS kept (token_id, month, requests, prompt_tokens, completion_tokens)
    SELECT token.id, %s, added.requests, added.prompt, added.completion
    FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[]) AS added (id, requests, prompt, completion)
    JOIN deployments_deploymenttoken token ON token.id = added.id
    ORDER BY token.id
    ON CONFLICT (token_id, month) DO UPDATE SET
        requests = kept.requests + excluded.requests,
        prompt_tokens = kept.prompt_tokens + excluded.prompt_tokens,
        completion_tokens = kept.completion_tokens + excluded.completion_tokens
    RETURNING token_id, requests, prompt_tokens, completion_tokens
"""


def store(uses: Mapping[int, TokenUse]) -> dict[int, SpentBudget]:
    """Add what tokens, by their primary keys, have used; return what of those that have budgets is spent.

    Tokens that are gone are passed over. Raises Error, and then nothing is stored.
    """
    if not uses:
        return {}
    now = clock.now()
    columns = zip(*((pk, *use) for pk, use in sorted(uses.items())), strict=True)
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(_ADD, [month_of(now).date(), *map(list, columns)])
            sums = {pk: TokenUse(*used) for pk, *used in cursor.fetchall()}
        has_budget = Q(monthly_requests__gt=0) | Q(monthly_tokens__gt=0)
        limited = list(DeploymentToken.objects.filter(has_budget, pk__in=sums))
        for deployment in {
            each.deployment_id for each in limited if _has_just_spent(each, sums[each.pk], uses[each.pk])
        }:
            notify.publish_to_proxies({"deployment": deployment})
    until = month_end(now.timestamp())
    return {each.pk: SpentBudget(sums[each.pk].requests, sums[each.pk].tokens, until) for each in limited}


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
