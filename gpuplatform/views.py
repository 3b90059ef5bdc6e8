"""The health check."""

from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
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


def _database_responds() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return False
    return True
