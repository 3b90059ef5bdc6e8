"""The list as a CSV file: every session that matches, not only those of one page."""

import csv
import io
from typing import Any, Final

from django.db.models import QuerySet
from django.db.models.functions import Coalesce

from pages.csv_cells import inert
from resources.amounts.units import fgpu_text
from sessions.models import Session, whole_status
from sessions.words import reason_text

MAX_ROWS: Final = 100_000
HEADER: Final = (
    *("id", "name", "owner", "status", "reason", "result", "exit_code", "environment", "version", "image"),
    *("resource_group", "host", "cpu", "memory_bytes", "shared_memory_bytes", "fgpu", "gpu_memory_bytes"),
    "members",
    *("reserved_at", "started_at", "ended_at", "ran_seconds"),
)
_FIELDS: Final = (
    *("id", "name", "owner__email", "shown_status", "reason", "detail", "result", "exit_code"),
    *("image__environment", "image__version", "image__reference", "resource_group__name", "host__name"),
    *("cpu", "memory", "shared_memory", "fgpu", "gpu_memory", "member_count", "created_at", "started_at", "ended_at"),
)


def csv_of(sessions: QuerySet[Session]) -> str:
    """Return the sessions as CSV with a header, times in UTC and ISO 8601; amounts are of each member. One query."""
    found = sessions.annotate(shown_status=whole_status(), member_count=Coalesce("cluster__size", 1))
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(HEADER)
    writer.writerows(_line(dict(zip(_FIELDS, row, strict=True))) for row in found.values_list(*_FIELDS)[:MAX_ROWS])
    return text.getvalue()


def _line(row: dict[str, Any]) -> list[object]:
    ran = (row["ended_at"] - row["started_at"]).total_seconds() if row["ended_at"] and row["started_at"] else None
    reason = reason_text(row.pop("reason"), row.pop("detail"))
    row["fgpu"] = fgpu_text(row["fgpu"])
    for name in ("created_at", "started_at", "ended_at"):
        row[name] = row[name].isoformat(timespec="seconds") if row[name] else ""
    values = list(row.values())
    values.insert(HEADER.index("reason"), reason)
    return [inert(value) for value in (*values, "" if ran is None else round(ran))]
