"""Pages of signing in and out."""

from django.contrib.auth.views import LoginView, LogoutView

from accounts.forms import SignInForm


class SignInView(LoginView):
    """Sign in by e-mail address; repeated failures show the locked-out page."""

    authentication_form = SignInForm
    template_name = "accounts/login.html"
    redirect_authenticated_user = True


class SignOutView(LogoutView):
    """Sign out, by POST alone: a link on a foreign page must not end a login session."""
