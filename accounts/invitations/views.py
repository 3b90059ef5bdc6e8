"""The page on which an invitation is accepted."""

from allauth.account.adapter import get_adapter
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from accounts.invitations import services as invitations
from accounts.models import User
from accounts.signing_in.forms import NewAccountForm


@sensitive_post_parameters("password1", "password2")
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def accept(request: HttpRequest, token: str) -> HttpResponse:
    """Make the account that somebody is invited to, and sign it in."""
    if (invitation := invitations.find(token)) is None:
        return render(request, "accounts/invitation.html", status=404)
    user = User(email=invitation.email)
    form = NewAccountForm(user, request.POST if request.method == "POST" else None)
    if form.is_bound and form.is_valid():
        form.fill(user)
        try:
            invitations.accept(invitation, user)
        except invitations.InvitationError:
            return render(request, "accounts/invitation.html", status=404)
        get_adapter(request).login(request, user)
        return redirect("home")
    return render(request, "accounts/invitation.html", {"form": form, "invitation": invitation})
