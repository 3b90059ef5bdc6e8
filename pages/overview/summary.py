"""The first page after signing in: my sessions and folders, what I may still use, and where something is free."""

from datetime import timedelta
from typing import Final

from django.db.models import Case, Count, F, OuterRef, Q, QuerySet, Subquery, When
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone

from accounts.models import User
from accounts.requests import UserRequest, signed_in_page
from folders.models import Folder
from pages.overview.allowance import allowances_of
from pages.overview.capacity import stocks_of
from pages.overview.platform_state import platform_state
from resources.models import ResourceGroup
from sessions.lifecycle import FINAL, LIVE, Status
from sessions.models import Mount, Session, SessionQuerySet, whole_status

SHOWN: Final = 8  # live sessions
ENDED_SHOWN: Final = 5
FOLDERS_SHOWN: Final = 4
ENDED_WITHIN: Final = timedelta(days=7)
GROUPS_SHOWN: Final = 12


@signed_in_page
def home(request: UserRequest) -> HttpResponse:
    """Show the summary; return only the live part to htmx."""
    user = request.user
    mine = Session.objects.mains().filter(owner=user)
    groups = list(ResourceGroup.objects.usable_by(user))
    counts = mine.annotate(whole=whole_status()).aggregate(
        live=Count("pk", filter=Q(whole__in=LIVE)), ended=Count("pk", filter=Q(whole__in=FINAL))
    )
    stocks = stocks_of(groups)
    context = {
        "groups": groups,
        "sessions": _live(mine),
        "live_count": counts["live"],
        "is_new": not any(counts.values()),
        "ended": _ended(mine),
        "folders": _recent_folders(user)[:FOLDERS_SHOWN],
        "allowances": allowances_of(user),
        "stocks": sorted(stocks, key=lambda stock: -stock.fgpu.free)[:GROUPS_SHOWN],
        "more_groups": max(0, len(stocks) - GROUPS_SHOWN),
        "platform": platform_state() if user.is_superuser else None,
    }
    return render(request, "overview/_home.html" if request.htmx else "overview/home.html", context)


def _live(mine: SessionQuerySet) -> list[Session]:
    """Return the live sessions to show: those that hold resources before those that wait, the newest first."""
    waits = Case(When(status=Status.PENDING, then=1), default=0)
    related = mine.mains_in(LIVE).select_related(
        "start_estimate", "owner__policy", "project__policy", "image", "resource_group", "host", "lease"
    )
    return list(related.with_members().order_by(waits, "-created_at", "-pk")[:SHOWN])


def _ended(mine: SessionQuerySet) -> list[Session]:
    since = timezone.now() - ENDED_WITHIN
    ended = mine.mains_in(FINAL).filter(ended_at__gt=since).select_related("image", "resource_group", "host", "cluster")
    return list(ended.order_by("-ended_at", "-pk")[:ENDED_SHOWN])


def _recent_folders(user: User) -> QuerySet[Folder]:
    """Return the folders that the user may read, with when a session of theirs mounted them last: the latest first."""
    mounts = Mount.objects.filter(folder=OuterRef("pk"), session__owner=user).order_by("-session__created_at")
    last = Subquery(mounts.values("session__created_at")[:1])
    folders = Folder.objects.readable_by(user).live().annotate(mounted_at=last)
    return folders.order_by(F("mounted_at").desc(nulls_last=True), "-created_at", "pk")
