"""The language that a user has chosen: kept with the account, and in a cookie for pages before the sign-in."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.http import HttpResponse
from django.utils import translation

from accounts.models import User


def save_language(user: AbstractBaseUser | AnonymousUser, language: str) -> None:
    """Store the choice of a signed-in user; a language that the platform does not have is ignored."""
    if isinstance(user, User) and language in dict(settings.LANGUAGES):
        User.objects.filter(pk=user.pk).update(language=language)


def set_language_cookie(response: HttpResponse, user: AbstractBaseUser | AnonymousUser) -> None:
    """Let the browser ask for pages in the language that the user has chosen, if any."""
    if isinstance(user, User) and user.language:
        response.set_cookie(
            settings.LANGUAGE_COOKIE_NAME,
            user.language,
            max_age=settings.LANGUAGE_COOKIE_AGE,
            secure=settings.LANGUAGE_COOKIE_SECURE,
            httponly=settings.LANGUAGE_COOKIE_HTTPONLY,
            samesite="Lax",
        )


@contextmanager
def language_of(user: User) -> Iterator[None]:
    """Translate into the user's language within the block: for mails and notifications, which no request asks for."""
    with translation.override(user.language or settings.LANGUAGE_CODE):
        yield
