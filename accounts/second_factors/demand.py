"""Policies that demand a second factor: who has none can sign in to set one up, and for nothing else.

What is due is noted in the login session at sign-in, so that requests cost no query. Who is signed in without a second
factor when one begins to be demanded, or once the last one is removed, is signed out, and loses the API tokens got by
password alone.
"""

import logging
from collections.abc import Iterable
from typing import Any, Final

from allauth.mfa.models import Authenticator
from allauth.mfa.signals import authenticator_added, authenticator_removed, authenticator_reset
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.signals import user_logged_in
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.signals import post_save
from django.dispatch import receiver
from django.http import HttpRequest

from accounts.login_sessions import services as logins
from accounts.models import ApiToken, Membership, Project, ResourcePolicy, User
from accounts.second_factors import services as second_factors

logger = logging.getLogger(__name__)

DUE: Final = "second_factor_due"  # in the login session


def is_lacking(user: User) -> bool:
    """Return whether the user has no second factor, although the user's policy or that of a project demands one."""
    policies = ResourcePolicy.objects.filter(require_second_factor=True)
    demanded = policies.filter(Q(users=user) | Q(projects__memberships__user=user)).exists()
    return demanded and not second_factors.has_any(user)


def is_due(request: HttpRequest) -> bool:
    """Return whether who is signed in must set up a second factor first; no query unless that was so."""
    if not request.session.get(DUE) or not isinstance(request.user, User):
        return False
    if is_lacking(request.user):
        return True
    del request.session[DUE]
    return False


@receiver(user_logged_in)
def _note_at_sign_in(request: HttpRequest, user: User, **kwargs: Any) -> None:
    if request.session.get(SESSION_KEY) == str(user.pk) and is_lacking(user):
        request.session[DUE] = True


@receiver(authenticator_added)
@receiver(authenticator_removed)
@receiver(authenticator_reset)
def _note_change(request: HttpRequest, user: User, **kwargs: Any) -> None:
    is_now_due = request.session[DUE] = is_lacking(user)
    if is_now_due:
        _sign_out([user], but=request.session.session_key)


@receiver(post_save, sender=ResourcePolicy)
def _policy_saved(instance: ResourcePolicy, **kwargs: Any) -> None:
    if instance.require_second_factor:
        own = Q(policy=instance) | Q(memberships__project__policy=instance)
        _sign_out(_without_factors(User.objects.filter(own).distinct()))


@receiver(post_save, sender=Project)
def _project_saved(instance: Project, created: bool, **kwargs: Any) -> None:
    if not created and instance.policy is not None and instance.policy.require_second_factor:
        _sign_out(_without_factors(User.objects.filter(memberships__project=instance)))


@receiver(post_save, sender=User)
def _user_saved(instance: User, created: bool, update_fields: Any = None, **kwargs: Any) -> None:
    concerned = update_fields is None or "policy" in update_fields
    if concerned and not created and instance.policy.require_second_factor:
        _sign_out(_without_factors(User.objects.filter(pk=instance.pk)))


@receiver(post_save, sender=Membership)
def _member_saved(instance: Membership, **kwargs: Any) -> None:
    policy = instance.project.policy
    if policy is not None and policy.require_second_factor:
        _sign_out(_without_factors(User.objects.filter(pk=instance.user_id)))


def _without_factors(users: QuerySet[User]) -> QuerySet[User]:
    factors = Authenticator.objects.filter(user=OuterRef("pk"), type__in=second_factors.PRIMARY)
    return users.filter(~Exists(factors))


def _sign_out(users: Iterable[User], *, but: str | None = None) -> None:
    """End what these users have got without a second factor, but the login session of this key."""
    for user in users:
        tokens, _ = ApiToken.objects.filter(user=user, name="").delete()
        ended = _end_free_logins(user, but)
        if tokens or ended:
            logger.info("user %s: a second factor is demanded; %d tokens, %d logins ended", user.pk, tokens, ended)


def _end_free_logins(user: User, but: str | None) -> int:
    """End the login sessions that may do more than set up a second factor; return how many."""
    others = user.logins.exclude(session_id=but) if but else user.logins.all()
    free = [login for login in others.select_related("session") if not login.session.get_decoded().get(DUE)]
    for login in free:
        logins.end(login)
    return len(free)
