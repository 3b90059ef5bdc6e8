"""Pages for signing in and out beside django-allauth's own, and the choice of the language."""

from typing import Any

from allauth.account.views import PasswordChangeView
from allauth.mfa.models import Authenticator
from django.contrib.auth.views import LogoutView
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_POST
from django.views.i18n import set_language

from accounts.language import save_language


@require_POST
def choose_language(request: HttpRequest) -> HttpResponse:
    """Show all pages in `language` from now on, in every browser in which the user signs in; return to `next`."""
    save_language(request.user, request.POST.get("language", ""))
    return set_language(request)


class SignOutView(LogoutView):
    """Sign out, only by POST: a link on another site must not end a login session."""


class PasswordPage(PasswordChangeView):
    """Change the password, which ends everything else that lets somebody in; this browser stays signed in."""

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return what a new password ends."""
        user = self.request.user
        counts = {
            "token_count": user.auth_token_set.count(),
            "key_count": user.ssh_keys.count(),
            "passkey_count": Authenticator.objects.filter(user=user, type=Authenticator.Type.WEBAUTHN).count(),
        }
        return {**super().get_context_data(**kwargs), **counts}
