"""The type of the requests that pages of signed-in users take."""

from django.http import HttpRequest
from django_htmx.middleware import HtmxDetails

from accounts.models import User


class UserRequest(HttpRequest):
    """A request that passed `login_required`, with the attributes that the middleware adds."""

    user: User
    htmx: HtmxDetails
