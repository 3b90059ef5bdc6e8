"""The page of a user, by which superadmins support them: sessions, limits, projects, use and sign-ins."""

from datetime import timedelta
from typing import Final

from django.db.models import Q
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone

from accounts import audit
from accounts.login_sessions import services as logins
from accounts.models import Membership, User
from accounts.requests import UserRequest, signed_in_page
from pages.overview.limits_in_force import limits_of, sources_of
from resources.models import ResourceGroup
from sessions.lifecycle import FINAL, LIVE
from sessions.models import Session
from sessions.usage.report import DEFAULT_DAYS, ReportBy, report_of

ENDED_SHOWN: Final = 5
LIVE_SHOWN: Final = 50
LOGINS_SHOWN: Final = 5


@signed_in_page
def user_page(request: UserRequest, user_id: int) -> HttpResponse:
    """Show the user; that somebody looked is in the audit log. A constant number of queries."""
    if not request.user.is_superuser:
        raise Http404
    person = get_object_or_404(User.objects.select_related("policy"), pk=user_id)
    if person != request.user:
        audit.record(request.user, "looked at", person, {})
    mine = Session.objects.filter(owner=person)
    sessions = mine.with_members().select_related("start_estimate", "image", "resource_group", "project")
    memberships = Membership.objects.filter(user=person).select_related("project")
    today = timezone.now().date()
    since = today - timedelta(days=DEFAULT_DAYS - 1)
    context = {
        "person": person,
        "live": sessions.mains_in(LIVE).order_by("-created_at")[:LIVE_SHOWN],
        "ended": sessions.mains_in(FINAL).order_by("-ended_at")[:ENDED_SHOWN],
        "sources": (sources := sources_of(person)),
        "limits": limits_of(sources),
        "groups": ResourceGroup.objects.usable_by(person).order_by("name"),
        "memberships": memberships.order_by("project__name"),
        "used": report_of(Q(owner=person), since, today, ReportBy.USER, timezone.now()).total,
        "days": DEFAULT_DAYS,
        "logins": logins.open_logins(person)[:LOGINS_SHOWN],
    }
    return render(request, "overview/user.html", context)
