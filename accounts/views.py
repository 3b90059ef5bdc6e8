"""Pages for signing in and out, and the choice of the language."""

from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_POST
from django.views.i18n import set_language

from accounts.forms import SignInForm
from accounts.language import save_language, set_language_cookie


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
