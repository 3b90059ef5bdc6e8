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

    That one is void at once. They have one row, so that what they have used stays counted: the page makes one each
    time it is opened.
    """
    secret, now = new_secret(), clock.now()
    with transaction.atomic():
        rows = Deployment.objects.select_for_update(no_key=True, of=("self",)).select_related("owner")
        row = rows.get(pk=deployment.pk)
        if row.ended_at is not None:
            raise RejectedError({GENERAL: "This deployment has ended."})
        token, _ = DeploymentToken.objects.update_or_create(
            deployment=row,
            is_trial=True,
            created_by=actor,
            defaults={
                "name": NAME,
                "digest": digest(secret),
                "created_at": now,
                "expires_at": now + LIFETIME,
                "revoked_at": None,
            },
        )
        if actor != row.owner:
            audit.record(actor, "add token", row, {"token": (None, token.name)})
        events.access_changed(row.pk)
    return CreatedToken(token, secret)
