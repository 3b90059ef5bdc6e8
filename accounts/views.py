"""Pages for signing in and out, and for SSH keys."""

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST
from django.views.i18n import set_language

from accounts import services
from accounts.forms import SignInForm, SshKeyForm
from accounts.language import save_language, set_language_cookie
from accounts.requests import UserRequest


class SignInView(LoginView):
    """Sign in by e-mail address; repeated failures show the locked-out page."""

    authentication_form = SignInForm
    template_name = "accounts/login.html"
    redirect_authenticated_user = True

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        """Sign the user in, in the language that the user has chosen before."""
        response = super().form_valid(form)
        set_language_cookie(response, form.get_user())
        return response


@require_POST
def choose_language(request: HttpRequest) -> HttpResponse:
    """Show all pages in `language` from now on, in every browser in which the user signs in; return to `next`."""
    save_language(request.user, request.POST.get("language", ""))
    return set_language(request)


class SignOutView(LogoutView):
    """Sign out, only by POST: a link on another site must not end a login session."""


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
@never_cache
def ssh_keys(request: UserRequest) -> HttpResponse:
    """Show the user's SSH keys, or add one."""
    form = SshKeyForm(request.POST or None)
    if request.method == "POST" and form.is_valid() and (added := form.save(request.user)):
        messages.success(request, f"The key {added.title} opens your sessions now.")
        return redirect("accounts:ssh-keys")
    context = {"form": form, "keys": request.user.ssh_keys.all()}
    return render(request, "accounts/ssh_keys.html", context, status=422 if form.is_bound else 200)


@require_POST
@login_required
def delete_ssh_key(request: UserRequest, key_id: int) -> HttpResponse:
    """Delete one of the user's keys."""
    key = get_object_or_404(request.user.ssh_keys, pk=key_id)
    services.delete_ssh_key(key)
    messages.success(request, f"The key {key.title} is deleted. Its SSH connections are being closed.")
    return redirect("accounts:ssh-keys")
