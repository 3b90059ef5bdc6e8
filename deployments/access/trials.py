"""Tokens of the page on which people try a deployment: short-lived, one of each user at a time.

They stand in the list of tokens and open what others open; whoever may see a deployment may use it so.
"""

from datetime import timedelta
from typing import Final

from django.db import transaction

from accounts import audit
from accounts.models import User
from deployments import events
from deployments.access.tokens import CreatedToken, new_secret
from deployments.models import Deployment, DeploymentToken
from proxy.authorization.signing import digest
from resources import clock
from sessions.errors import GENERAL, RejectedError

NAME: Final = "Try it"
LIFETIME: Final = timedelta(hours=1)


def trial_token(deployment: Deployment, *, actor: User) -> CreatedToken:
    """Make a token for the page of the actor, who may see the deployment; it takes the place of their last one.

    That one is void at once, and its row is gone: the page makes one each time it is opened.
    """
    secret, now = new_secret(), clock.now()
    with transaction.atomic():
        rows = Deployment.objects.select_for_update(no_key=True, of=("self",)).select_related("owner")
        row = rows.get(pk=deployment.pk)
        if row.ended_at is not None:
            raise RejectedError({GENERAL: "This deployment has ended."})
        row.tokens.filter(is_trial=True, created_by=actor).delete()
        row.tokens.filter(is_trial=True, expires_at__lte=now).delete()
        token = DeploymentToken.objects.create(
            deployment=row,
            name=NAME,
            digest=digest(secret),
            created_by=actor,
            created_at=now,
            expires_at=now + LIFETIME,
            is_trial=True,
        )
        if actor != row.owner:
            audit.record(actor, "add token", row, {"token": (None, token.name)})
        events.changed(row.pk)
    return CreatedToken(token, secret)
