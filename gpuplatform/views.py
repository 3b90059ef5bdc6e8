"""The health check, the administration's way to the sign-in page, and the page about errors."""

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template import loader
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from gpuplatform import redis_probe


@never_cache
@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """Respond 200 if database and Redis respond, else 503, with the state of each. Needs no login."""
    parts = {"database": _database_responds(), "redis": redis_probe.version(settings.CHANNEL_REDIS_URL) is not None}
    return JsonResponse(
        {name: "ok" if is_ok else "unreachable" for name, is_ok in parts.items()},
        status=200 if all(parts.values()) else 503,
    )


@never_cache
@require_safe
def admin_sign_in(request: HttpRequest) -> HttpResponseRedirect:
    """Send strangers of the administration to the site's sign-in page, which alone takes passwords; refuse others."""
    if request.user.is_authenticated:
        raise PermissionDenied
    return HttpResponseRedirect(f"{reverse('accounts:login')}?{request.GET.urlencode(safe='/')}")


def server_error(request: HttpRequest) -> HttpResponse:
    """Respond 500. The page gets the request for its nonce, but nothing that asks the database, which may be down."""
    return HttpResponse(loader.get_template("500.html").render({"request": request}), status=500)


def _database_responds() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return False
    return True
