"""What users and projects have of what a resource policy limits, by the name of the policy's field."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Literal

from django.db.models import Count, Q, Sum

from folders.models import Folder
from resources.models import Image, ImageSource
from sessions.lifecycle import HOSTED, Status
from sessions.models import COUNTS_AS_PARKED, Session

Use = Mapping[str, Mapping[int, int]]  # {field of the policy: {id of the user or project: amount}}


def use_by(column: Literal["owner", "project"], **condition: object) -> Use:
    """Return what each user or project has whose sessions, folders and images meet the condition; three queries.

    Who has nothing of a kind is not named there. Storage is that on the root of which they use most.
    """
    holds = Q(status__in=HOSTED)
    sums = {
        "cpu": Sum("cpu", filter=holds),
        "memory": Sum("memory", filter=holds),
        "fgpu": Sum("fgpu", filter=holds),
        "max_sessions": Count("pk", filter=holds),
        "max_pending": Count("pk", filter=Q(status=Status.PENDING, is_elastic=False)),
        "max_parked": Count("pk", filter=COUNTS_AS_PARKED),
    }
    found: dict[str, dict[int, int]] = {name: {} for name in (*sums, "max_folders", "storage_bytes", "storage_files")}
    for row in Session.objects.live().filter(**condition).order_by().values(column).annotate(**sums):
        for name in sums:
            found[name][row[column]] = row[name] or 0
    folders = Folder.objects.filter(**condition).order_by().values(column, "root")
    counts: defaultdict[int, int] = defaultdict(int)
    sizes = {"storage_bytes": Sum("used_bytes"), "storage_files": Sum("used_files")}
    for row in folders.annotate(live=Count("pk", filter=Q(trashed_at=None)), **sizes):
        counts[row[column]] += row["live"]
        for name in sizes:
            found[name][row[column]] = max(row[name], found[name].get(row[column], 0))
    found["max_folders"] = counts
    if column == "owner":
        images = Image.objects.filter(**condition, source=ImageSource.SESSION, removed_at=None).order_by()
        found["max_private_images"] = dict(images.values_list(column).annotate(Count("pk")))
    return found
