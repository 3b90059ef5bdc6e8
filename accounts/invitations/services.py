"""Invitations: made by superadmins, mailed, and accepted once within a week."""

import logging
import secrets
from collections.abc import Iterable
from datetime import timedelta
from functools import partial
from hashlib import sha256
from typing import Final

from django.core.mail import EmailMessage
from django.db import transaction
from django.db.models import QuerySet
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from accounts import audit
from accounts.models import Membership, Project, ResourcePolicy, User
from accounts.models.invitations import AccountInvitation
from accounts.signing_in import mail
from accounts.signing_in.language import language_of

logger = logging.getLogger(__name__)

LIFETIME: Final = timedelta(days=7)
TOKEN_BYTES: Final = 32


class InvitationError(Exception):
    """The address cannot be invited, or the invitation not be accepted; the message says why."""


def invite(email: str, *, policy: ResourcePolicy, project: Project | None, by: User) -> tuple[AccountInvitation, str]:
    """Mail a link to an address; return (invitation, link). An earlier link to it is void from then on.

    Raises InvitationError where there is an account with the address already.
    """
    email = User.objects.normalize_email(email)
    if User.objects.filter(email=email).exists():
        raise InvitationError(_("There is an account with this address already."))
    token = secrets.token_urlsafe(TOKEN_BYTES)
    chosen = {"policy": policy, "project": project, "invited_by": by, "digest": _digest(token)}
    times = {"created_at": timezone.now(), "expires_at": timezone.now() + LIFETIME}
    with audit.act(by, "invite") as made:
        invitation, _made = AccountInvitation.objects.update_or_create(
            email=email, accepted_at=None, defaults=chosen | times
        )
        made.append(invitation)
    link = mail.public_address(reverse("accounts:invitation", args=[token]))
    transaction.on_commit(partial(mail.send_soon, _message(invitation, link)))
    logger.info("user %s: invited %s", by.pk, email)
    return invitation, link


def send_again(invitations: Iterable[AccountInvitation], by: User) -> int:
    """Mail a new link to each address whose invitation was not accepted yet; return how many."""
    pending = [each for each in invitations if each.accepted_at is None]
    for each in pending:
        invite(each.email, policy=each.policy, project=each.project, by=by)
    return len(pending)


def find(token: str) -> AccountInvitation | None:
    """Return the invitation that this link accepts; None if it was accepted, withdrawn or replaced, or has expired."""
    return _pending().filter(digest=_digest(token)).first()


def pending_for(email: str) -> AccountInvitation | None:
    """Return the invitation to this address that was not accepted yet; None without one."""
    return _pending().filter(email=User.objects.normalize_email(email)).first()


@transaction.atomic
def accept(invitation: AccountInvitation, user: User) -> None:
    """Store `user`, who has no row yet, as the account of the invitation.

    Raises InvitationError if the invitation was accepted or withdrawn meanwhile.
    """
    held = _pending().select_for_update(of=("self",)).filter(pk=invitation.pk, digest=invitation.digest).first()
    if held is None or User.objects.filter(email=held.email).exists():
        raise InvitationError(_("This invitation was accepted or withdrawn meanwhile."))
    user.email, user.policy = held.email, held.policy
    user.save()
    if held.project is not None:
        Membership.objects.create(project=held.project, user=user)
    held.accepted_at = timezone.now()
    held.save(update_fields=["accepted_at"])
    logger.info("user %s: accepted the invitation to %s", user.pk, held.email)


def _pending() -> QuerySet[AccountInvitation]:
    found = AccountInvitation.objects.filter(accepted_at=None, expires_at__gt=timezone.now())
    return found.select_related("policy", "project", "invited_by")


def _digest(token: str) -> str:
    return sha256(token.encode()).hexdigest()


def _message(invitation: AccountInvitation, link: str) -> EmailMessage:
    """Return the mail, in the language of who invites."""
    by = invitation.invited_by or User()
    with language_of(by):
        context = {"invitation": invitation, "link": link, "by": by.get_full_name() or by.email, "days": LIFETIME.days}
        body = render_to_string("accounts/invitation.txt", context)
        subject = _("GPU Platform: you are invited")
    return EmailMessage(subject, body, None, [invitation.email], headers={"Auto-Submitted": "auto-generated"})
