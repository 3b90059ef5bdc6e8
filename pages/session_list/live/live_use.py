"""What running sessions use now of what they hold, as their hosts last recorded it."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from django.db.models import QuerySet
from django.db.models.expressions import RawSQL
from django.db.models.functions import Now

from pages.session_list.compiled import of_sessions
from sessions.models import SessionUsage

FRESH: Final = timedelta(seconds=45)  # hosts record every ten seconds; older figures are not shown as current

Use = list[int | None]  # milli-cores, bytes, percent of the devices' time, bytes of GPU memory


def live_use(session_ids: Sequence[str]) -> dict[str, Use]:
    """Return the use of those of the sessions of which a fresh record exists; one query."""
    return {session_id: list(use) for session_id, *use in of_sessions(_newest, session_ids)}


def _newest(ids: RawSQL) -> QuerySet[Any, Any]:
    fresh = SessionUsage.objects.filter(session__in=ids, at__gte=Now() - FRESH)
    newest = fresh.order_by("session_id", "-at").distinct("session_id")
    return newest.values_list("session_id", "cpu_milli", "memory", "gpu_utilisation", "gpu_memory")
