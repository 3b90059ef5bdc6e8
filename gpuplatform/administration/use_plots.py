"""What a resource group or a host lent, and who waited for the group, over time: for plots of the administration."""

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.core.cache import cache
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.db.models import QuerySet, Sum
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404

from resources import clock
from resources.models import Gpu, Host, ResourceGroup
from sessions.models import Session, SessionQuerySet
from sessions.usage.held import held_query

CACHED_SECONDS: Final = 60  # since open pages ask again all the time
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
STEPS: Final = {"day": (timedelta(minutes=15), 96), "week": (timedelta(hours=2), 84)}  # and how many are shown


def group_use(request: HttpRequest, group_id: int) -> JsonResponse:
    """Send the points of a group's last day or week, their step in seconds, and how many GPUs and cores there are now.

    A point has the means, over the step that ends then, of the GPUs and cores held and the sessions waiting.
    """
    return _use(request, ResourceGroup, "resource_group_id", group_id, Host.objects.filter(group=group_id))


def host_use(request: HttpRequest, host_id: int) -> JsonResponse:
    """Send the same of a host; a session counts for the host where it ran last."""
    return _use(request, Host, "host_id", host_id, Host.objects.filter(pk=host_id))


def _use(
    request: HttpRequest, model: type[Host | ResourceGroup], key: str, pk: int, hosts: QuerySet[Host]
) -> JsonResponse:
    """Send what sessions held whose field `key` is this row of the model, out of what these hosts have."""
    if not request.user.is_superuser:
        raise PermissionDenied
    get_object_or_404(model, pk=pk)
    window = "week" if request.GET.get("window") == "week" else "day"
    step, count = STEPS[window]

    def read() -> dict[str, Any]:
        gpus = Gpu.objects.filter(host__in=hosts, is_present=True).count()
        cores = hosts.aggregate(cores=Sum("cpu", default=0))["cores"]
        points = _points(Session.objects.filter(**{key: pk}), key, step, count, clock.now())
        return {"step": step.total_seconds(), "gpus": gpus, "cores": cores, "points": points}

    return JsonResponse(cache.get_or_set(f"use-{key}-{pk}-{window}", read, CACHED_SECONDS))


def _points(sessions: SessionQuerySet, key: str, step: timedelta, count: int, now: datetime) -> list[dict[str, Any]]:
    end = now - (now - EPOCH) % step
    begin = end - count * step
    sums: defaultdict[datetime, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    with connection.cursor() as cursor:
        cursor.execute(*held_query(sessions, (key, "resource_group__fgpu_per_gpu"), begin, end, end, step))
        for _, fgpu_per_gpu, begun, fgpu, _, cpu, _, waiting in cursor.fetchall():
            held = (fgpu / (fgpu_per_gpu * 1000), cpu, waiting)
            sums[begun] = [before + more for before, more in zip(sums[begun], held, strict=True)]
    seconds, points = step.total_seconds(), []
    for number in range(count):
        gpus, cores, waiting = (each / seconds for each in sums[begin + number * step])
        at = (begin + (number + 1) * step).isoformat()
        points.append({"at": at, "gpus": gpus, "cores": cores, "waiting": waiting})
    return points
