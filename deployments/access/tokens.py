"""Tokens of deployments: made, revoked, and noted as used. A secret is shown once; its digest is stored."""

import secrets
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from django.db import transaction

from accounts import audit
from accounts.models import User
from deployments import events, validation
from deployments.models import TOKEN_PREFIX, Deployment, DeploymentToken
from proxy.authorization.signing import digest
from resources import clock
from sessions.errors import GENERAL, RejectedError

LIMITS: Final = ("rate_per_minute", "monthly_requests", "monthly_tokens")
MAX_TOKENS: Final = 200  # of one deployment that are not revoked
SECRET_BYTES: Final = 32  # 43 characters


class CreatedToken(NamedTuple):
    """A token and its secret, which is not stored."""

    token: DeploymentToken
    secret: str


def create_token(
    deployment: Deployment, *, name: str, actor: User, expires_at: datetime | None = None, **limits: int
) -> CreatedToken:
    """Make a token of the deployment, with limits of LIMITS, and return it with its secret.

    Raises RejectedError at its fields.
    """
    if errors := validation.token_errors(name, expires_at, limits, clock.now()):
        raise RejectedError(errors)
    secret = new_secret()
    with transaction.atomic():
        row = Deployment.objects.select_for_update(no_key=True).get(pk=deployment.pk)
        if row.ended_at is not None:
            raise RejectedError({GENERAL: "This deployment has ended."})
        if row.tokens.filter(revoked_at=None, is_trial=False).count() >= MAX_TOKENS:
            raise RejectedError({"name": f"A deployment has at most {MAX_TOKENS} tokens; revoke one first."})
        token = DeploymentToken.objects.create(
            deployment=row,
            name=name.strip(),
            digest=digest(secret),
            created_by=actor,
            created_at=clock.now(),
            expires_at=expires_at,
            **limits,
        )
        events.record(row, f"Added the token {token.name}.", actor)
        if actor != row.owner:
            audit.record(actor, "add token", row, {"token": (None, token.name)})
        events.access_changed(row.pk)
    return CreatedToken(token, secret)


def change_limits(token: DeploymentToken, limits: Mapping[str, int], *, actor: User) -> None:
    """Change limits of LIMITS of a token; it takes effect at once. Raises RejectedError at their fields."""
    if errors := validation.range_errors(limits):
        raise RejectedError(errors)
    with transaction.atomic():
        row = DeploymentToken.objects.select_for_update(no_key=True).get(pk=token.pk)
        if row.revoked_at is not None:
            raise RejectedError({GENERAL: "This token is revoked."})
        changes = {
            name: (str(getattr(row, name)), str(value)) for name, value in limits.items() if getattr(row, name) != value
        }
        if not changes:
            return
        for name, value in limits.items():
            setattr(row, name, value)
        row.save(update_fields=[*changes])
        deployment = token.deployment
        events.record(deployment, f"Changed the limits of the token {token.name}.", actor)
        if actor != deployment.owner:
            audit.record(actor, "change token", deployment, changes)
        events.changed(deployment.pk)
    token.refresh_from_db(fields=LIMITS)


def revoke_token(token: DeploymentToken, *, actor: User) -> None:
    """Revoke the token at once, with the connections that it opened; without effect if it was revoked already."""
    with transaction.atomic():
        if not DeploymentToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=clock.now()):
            return
        deployment = token.deployment
        events.record(deployment, f"Revoked the token {token.name}.", actor)
        if actor != deployment.owner:
            audit.record(actor, "revoke token", deployment, {"token": (token.name, None)})
        events.changed(deployment.pk)


def new_secret() -> str:
    """Return the secret of a new token."""
    return TOKEN_PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def note_use(tokens: Iterable[int]) -> None:
    """Note that these tokens, by their ids, are in use now; one query."""
    DeploymentToken.objects.filter(pk__in=[*tokens]).update(last_used_at=clock.now())
