"""API tokens, for the page and the API: named, limited to reading if wanted, expiring, and shown once."""

import logging
from datetime import timedelta
from typing import Final

from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from accounts.models import ApiToken, TokenScope, User

logger = logging.getLogger(__name__)

MAX_TOKENS: Final = 50  # with a name, of one user
MAX_LIFETIME: Final = timedelta(days=365)
USED_EVERY: Final = timedelta(minutes=1)  # how exact the time of the last use is


class TokenRejectedError(Exception):
    """A token of this name cannot be made; the message says why."""


def create_token(user: User, name: str, *, scope: str, lifetime: timedelta) -> tuple[ApiToken, str]:
    """Store a token and return (row, text); the text is stored nowhere. Raises TokenRejectedError."""
    name = " ".join(name.replace("\0", "").split())
    live = user.auth_token_set.filter(expiry__gt=timezone.now()).exclude(name="")
    if live.count() >= MAX_TOKENS:
        raise TokenRejectedError(_("You have %(count)d tokens already; delete one first.") % {"count": MAX_TOKENS})
    user.auth_token_set.filter(expiry__lte=timezone.now(), name=name).delete()  # whose name may be used again
    try:
        with transaction.atomic():
            row, text = ApiToken.objects.issue(
                user, name=name, scope=TokenScope(scope), lifetime=min(lifetime, MAX_LIFETIME)
            )
    except IntegrityError as error:
        raise TokenRejectedError(_("You have a token of this name already.")) from error
    logger.info("user %s: made API token %s (%s)", user.pk, row.uid, row.scope)
    return row, text


def revoke(token: ApiToken) -> None:
    """Delete the token: the next request with it is refused."""
    token.delete()
    logger.info("user %s: deleted API token %s", token.user_id, token.uid)


def note_use(token: ApiToken) -> None:
    """Write that the token was used, at most once a minute."""
    now = timezone.now()
    if token.last_used_at is None or token.last_used_at < now - USED_EVERY:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
