"""The type of the requests that pages of signed-in users take, and the decorators of their views."""

from collections.abc import Callable
from typing import TypeVar

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods
from django.views.decorators.vary import vary_on_headers
from django_htmx.middleware import HtmxDetails

from accounts.models import User

View = TypeVar("View", bound=Callable[..., HttpResponseBase])


class UserRequest(HttpRequest):
    """A request that passed `login_required`, with the attributes that the middleware adds."""

    user: User
    htmx: HtmxDetails


def signed_in_page(view: View) -> View:
    """Decorate a view that shows something; htmx may get a part of the page."""
    return _signed_in(view, "GET", "HEAD")


def signed_in_form(view: View) -> View:
    """Decorate a view that shows a form or a dialog, and takes it."""
    return _signed_in(view, "GET", "HEAD", "POST")


def signed_in_act(view: View) -> View:
    """Decorate a view that only does something."""
    return _signed_in(view, "POST")


def _signed_in(view: View, *methods: str) -> View:
    return require_http_methods(methods)(login_required(never_cache(vary_on_headers("HX-Request")(view))))
