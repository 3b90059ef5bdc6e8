"""Pages of one's own account: name, API tokens, SSH keys and login sessions."""

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_POST

from accounts.credentials import ssh_keys as services
from accounts.credentials import tokens
from accounts.credentials.ssh_address import ssh_server
from accounts.forms import ProfileForm, SshKeyForm, TokenForm
from accounts.login_sessions import services as logins
from accounts.models import SshHostKey
from accounts.requests import UserRequest, signed_in_form, signed_in_page

PAGE_SIZE = 25


@signed_in_form
def profile(request: UserRequest) -> HttpResponse:
    """Show who the user is, or change the name."""
    form = ProfileForm(request.POST if request.method == "POST" else None, instance=request.user)
    if form.is_bound and form.is_valid():
        form.save()
        messages.success(request, _("Your name is saved."))
        return redirect("accounts:profile")
    return render(request, "accounts/profile.html", {"form": form}, status=_status(form))


@signed_in_form
def token_list(request: UserRequest) -> HttpResponse:
    """List the user's API tokens, or make one; the response to that is the only page that shows it."""
    form = TokenForm(request.POST if request.method == "POST" else None)
    made = form.save(request.user) if form.is_bound and form.is_valid() else None
    page = Paginator(request.user.auth_token_set.all(), PAGE_SIZE).get_page(request.GET.get("page"))
    context = {"form": TokenForm() if made else form, "page": page, "made": made}
    return render(request, "accounts/tokens.html", context, status=200 if made else _status(form))


@require_POST
@login_required
def delete_token(request: UserRequest, uid: str) -> HttpResponse:
    """Delete one of the user's API tokens."""
    token = get_object_or_404(request.user.auth_token_set, uid=uid)
    tokens.revoke(token)
    messages.success(request, _("The token %(name)s is deleted: the API refuses it from now on.") % {"name": token})
    return redirect("accounts:tokens")


@signed_in_form
def ssh_keys(request: UserRequest) -> HttpResponse:
    """Show the user's SSH keys and the key of the platform's SSH server, or add one."""
    form = SshKeyForm(request.POST if request.method == "POST" else None)
    if form.is_bound and form.is_valid() and (added := form.save(request.user)):
        messages.success(request, _("The key %(name)s opens your sessions now.") % {"name": added.title})
        return redirect("accounts:ssh-keys")
    server = ssh_server()
    context = {
        "form": form,
        "keys": request.user.ssh_keys.all(),
        "host_key": SshHostKey.objects.first(),
        "known_hosts": server.known_hosts if server else "",
    }
    return render(request, "accounts/ssh_keys.html", context, status=_status(form))


@require_POST
@login_required
def delete_ssh_key(request: UserRequest, key_id: int) -> HttpResponse:
    """Delete one of the user's keys."""
    key = get_object_or_404(request.user.ssh_keys, pk=key_id)
    services.delete_ssh_key(key)
    text = _("The key %(name)s is deleted. Its SSH connections are being closed.")
    messages.success(request, text % {"name": key.title})
    return redirect("accounts:ssh-keys")


@signed_in_page
def login_list(request: UserRequest) -> HttpResponse:
    """List the browsers in which the user is signed in."""
    page = Paginator(logins.open_logins(request.user), PAGE_SIZE).get_page(request.GET.get("page"))
    context = {"page": page, "current": request.session.session_key}
    return render(request, "accounts/logins.html", context)


@require_POST
@login_required
def end_login(request: UserRequest, login_id: int) -> HttpResponse:
    """End one of the user's login sessions."""
    login = get_object_or_404(request.user.logins, pk=login_id)
    logins.end(login)
    messages.success(request, _("That browser is signed out."))
    return redirect("accounts:logins")


@require_POST
@login_required
def end_other_logins(request: UserRequest) -> HttpResponse:
    """End all login sessions of the user but this one."""
    count = logins.end_all(request.user, but=request.session.session_key)
    text = ngettext("%(count)d other browser is signed out.", "%(count)d other browsers are signed out.", count)
    messages.success(request, text % {"count": count})
    return redirect("accounts:logins")


def _status(form: Any) -> int:
    return 422 if form.is_bound else 200
