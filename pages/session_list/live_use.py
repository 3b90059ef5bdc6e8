"""What running sessions use now of what they hold, as their hosts last recorded it."""

from collections.abc import Collection
from datetime import timedelta
from typing import Final

from django.utils import timezone

from sessions.models import SessionUsage

FRESH: Final = timedelta(seconds=45)  # hosts record every ten seconds; older figures are not shown as current

Use = list[int | None]  # milli-cores, bytes, percent of the devices' time, bytes of GPU memory


def live_use(session_ids: Collection[str]) -> dict[str, Use]:
    """Return the use of those of the sessions of which a fresh record exists; one query."""
    fresh = SessionUsage.objects.filter(session__in=session_ids, at__gte=timezone.now() - FRESH)
    newest = fresh.order_by("session_id", "-at").distinct("session_id")
    rows = newest.values_list("session_id", "gpu_utilisation", "gpu_memory")
    return {session_id: [None, None, busy, memory] for session_id, busy, memory in rows}
