"""Whether the credentials of a request are still valid, for responses that take longer than a revocation may."""

from copy import copy
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user
from django.utils import timezone
from rest_framework.request import Request

from accounts.models import ApiToken, User


def are_valid(request: Request) -> bool:
    """Return whether the token or login session of the request may still be used, with the rights that it had."""
    if isinstance(request.auth, ApiToken):
        found = user_of_token(request.auth.pk)
    else:
        plain = copy(request._request)
        key = plain.session.session_key
        plain.session = import_module(settings.SESSION_ENGINE).SessionStore(key)
        user = get_user(plain)
        found = user if isinstance(user, User) and user.is_active else None
    return found is not None and found.is_superuser == request.user.is_superuser


def user_of_token(pk: Any) -> User | None:
    """Return the user of the token with this primary key; None once it has expired or was deleted."""
    tokens = ApiToken.objects.filter(pk=pk, user__is_active=True, expiry__gt=timezone.now())
    return User.objects.filter(pk__in=tokens.values("user")).first()
