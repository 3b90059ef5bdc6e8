"""What a resource group lent and who waited for it, over time, for the plots of the administration's front page."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.core.cache import cache
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404

from resources import clock
from resources.models import Gpu, ResourceGroup
from sessions.models import Session
from sessions.usage.held import held_query

CACHED_SECONDS: Final = 60  # since open pages ask again all the time
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
STEPS: Final = {"day": (timedelta(minutes=15), 96), "week": (timedelta(hours=2), 84)}  # and how many are shown


def group_use(request: HttpRequest, group_id: int) -> JsonResponse:
    """Send the points of the last day or week, their step in seconds, and how many GPUs there are now.

    A point has the means, over the step that ends then, of the GPUs held and the sessions waiting.
    """
    if not request.user.is_superuser:
        raise PermissionDenied
    group = get_object_or_404(ResourceGroup, pk=group_id)
    window = "week" if request.GET.get("window") == "week" else "day"
    key = f"group-use-{group.pk}-{window}"
    return JsonResponse(cache.get_or_set(key, lambda: _use(group, *STEPS[window], clock.now()), CACHED_SECONDS))


def _use(group: ResourceGroup, step: timedelta, count: int, now: datetime) -> dict[str, Any]:
    end = now - (now - EPOCH) % step
    begin = end - count * step
    sessions = Session.objects.filter(resource_group=group)
    with connection.cursor() as cursor:
        cursor.execute(*held_query(sessions, ("resource_group_id",), begin, end, end, step))
        sums = {begun: (fgpu, waiting) for _, begun, fgpu, *_, waiting in cursor.fetchall()}
    seconds, points = step.total_seconds(), []
    for number in range(count):
        fgpu, waiting = sums.get(begin + number * step, (0.0, 0.0))
        at = (begin + (number + 1) * step).isoformat()
        points.append({"at": at, "gpus": fgpu / group.gpu_capacity / seconds, "waiting": waiting / seconds})
    gpus = Gpu.objects.filter(host__group=group, is_present=True).count()
    return {"step": seconds, "gpus": gpus, "points": points}
