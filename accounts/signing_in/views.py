"""Pages for signing in and out beside django-allauth's own, and the choice of the language."""

import logging
from typing import Any

from allauth.account.views import PasswordChangeView
from allauth.mfa.models import Authenticator
from allauth.socialaccount.providers.openid_connect import views as openid
from django.contrib.auth.views import LogoutView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST
from django.views.i18n import set_language
from requests.exceptions import RequestException

from accounts.signing_in.language import save_language

logger = logging.getLogger(__name__)


@require_POST
def choose_language(request: HttpRequest) -> HttpResponse:
    """Show all pages in `language` from now on, in every browser in which the user signs in; return to `next`."""
    save_language(request.user, request.POST.get("language", ""))
    return set_language(request)


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def to_provider(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Lead to the sign-in page of an OpenID Connect provider; GET asks first, since it may be another site's doing.

    A redirect would not do: the Content-Security-Policy holds those that follow a form to this site, and providers
    redirect on to others that nobody here knows.
    """
    try:
        response: HttpResponse = openid.login(request, provider_id)
    except RequestException as error:
        logger.warning("no answer of the OpenID Connect provider: %s", error)
        return render(request, "socialaccount/authentication_error.html", status=502)
    if request.method == "POST" and response.status_code == 302:
        return render(request, "socialaccount/leaving.html", {"address": response["Location"]})
    return response


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
