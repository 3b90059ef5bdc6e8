"""The checks of health and readiness, the command line's package, and the administration's way to the sign-in page."""

import asyncio
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import etag, require_safe

from operations.health import checks as health
from operations.health.readiness import OK, readiness
from operations.metrics.views import may_read
from restapi.client_wheel import version, wheel
from restapi.client_zipapp import zipapp

FOR_EVER = "public, max-age=31536000, immutable"  # another content has another name


@never_cache
@require_safe
async def healthz(request: HttpRequest) -> JsonResponse:
    """Respond within two seconds: 200 if database and Redis respond, else 503, with each one's state; without login.

    Headers say which installation responds, and which version of the command line it offers.
    """
    database, redis = await asyncio.gather(health.database.result(), health.redis.result())
    parts = {"database": database, "redis": redis}
    return JsonResponse(
        {name: "ok" if is_ok else "unreachable" for name, is_ok in parts.items()},
        status=200 if all(parts.values()) else 503,
        headers={"X-Installation": health.installation(), "X-Client-Version": version(settings.COMPUTE_PUBLIC_URL)},
    )


@never_cache
@require_safe
async def readyz(request: HttpRequest) -> JsonResponse:
    """Respond within two seconds: 200 if the installation works, else 503; superadmins and monitoring get the parts."""
    parts = await readiness.result()
    is_ready = set(parts.values()) == {OK}
    content: dict[str, Any] = {"status": "ready" if is_ready else "not ready"}
    if may_read(request) or (parts.get("database") == OK and (await request.auser()).is_superuser):
        content["parts"] = parts
    return JsonResponse(content, status=200 if is_ready else 503)


@never_cache
@require_safe
def admin_sign_in(request: HttpRequest) -> HttpResponseRedirect:
    """Send strangers of the administration to the site's sign-in page, which alone takes passwords; refuse others."""
    if request.user.is_authenticated:
        raise PermissionDenied
    return HttpResponseRedirect(f"{reverse('account_login')}?{request.GET.urlencode(safe='/')}")


@require_safe
def client_wheel(request: HttpRequest, name: str) -> HttpResponse:
    """Return the package of the command line, which pip takes without signing in."""
    package = wheel(settings.COMPUTE_PUBLIC_URL)
    if name != package.name:
        raise Http404
    return HttpResponse(package.content, content_type="application/zip", headers={"Cache-Control": FOR_EVER})


def _zipapp_etag(request: HttpRequest) -> str | None:
    return f'"{made.digest}"' if (made := zipapp()) else None


@require_safe
@etag(_zipapp_etag)
def client_zipapp(request: HttpRequest) -> HttpResponse:
    """Return the command line as one file, which anybody may have without signing in."""
    if (made := zipapp()) is None:
        raise Http404
    headers = {"Cache-Control": "no-cache", "Content-Disposition": 'attachment; filename="gpuplatform"'}
    return HttpResponse(made.content, content_type="application/octet-stream", headers=headers)
