"""Pages of no app: the health of this process and of what it depends on."""

from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from gpuplatform import redis_probe


@never_cache
@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """Answer 200 when database and Redis answer, else 503; says which, and nothing more, since anybody may ask."""
    parts = {"database": _database_answers(), "redis": redis_probe.version(settings.CHANNEL_REDIS_URL) is not None}
    return JsonResponse(
        {name: "ok" if answers else "unreachable" for name, answers in parts.items()},
        status=200 if all(parts.values()) else 503,
    )


def _database_answers() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return False
    return True
