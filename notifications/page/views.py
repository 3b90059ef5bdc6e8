"""Pages of notifications, and what the script of every page asks for."""

from collections.abc import Iterable
from typing import Final

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from accounts.requests import UserRequest, signed_in_form, signed_in_page
from notifications import services
from notifications.announcements import services as announcements
from notifications.delivery.texts import KIND_NAMES, text_of
from notifications.kinds import WAYS, Ways
from notifications.models import Announcement, Notification

PAGE_SIZE: Final = 30
PANEL_SIZE: Final = 8
PENDING_SIZE: Final = 5  # at once; the list has all


@signed_in_page
def notification_list(request: UserRequest) -> HttpResponse:
    """Show the user's notifications, the newest first."""
    listed = Notification.objects.filter(user=request.user, on_page=True)
    page = Paginator(listed, PAGE_SIZE).get_page(request.GET.get("page"))
    return render(request, "notifications/list.html", {"page": page, "notices": _with_texts(page)})


@signed_in_page
def panel(request: UserRequest) -> HttpResponse:
    """Show the newest notifications in the bell's panel."""
    newest = Notification.objects.filter(user=request.user, on_page=True)[:PANEL_SIZE]
    return render(request, "notifications/_panel.html", {"notices": _with_texts(newest)})


@signed_in_page
def pending(request: UserRequest) -> HttpResponse:
    """Return what no page has shown yet, for a toast or the browser's own notification."""
    unshown = Notification.objects.filter(user=request.user, shown_at=None).order_by("-id")[:PENDING_SIZE]
    found = []
    for notification in reversed(unshown):
        text = text_of(notification)
        found.append(
            {
                "id": notification.pk,
                "title": text.title,
                "body": text.body,
                "url": text.url,
                "level": text.level,
                "onPage": notification.on_page,
                "inBrowser": notification.in_browser,
            }
        )
    return JsonResponse({"pending": found})


@require_POST
@login_required
def shown(request: UserRequest) -> HttpResponse:
    """Note which notifications have been shown."""
    services.mark_shown(request.user, _ids(request.POST.getlist("ids")))
    return HttpResponse(status=204)


@require_POST
@login_required
def read(request: UserRequest) -> HttpResponse:
    """Note that the user has read their notifications up to one."""
    for newest in _ids([request.POST.get("up_to", "")]):
        services.mark_read(request.user, up_to=newest)
    return HttpResponse(status=204) if request.htmx or "quiet" in request.POST else redirect("notifications:list")


@signed_in_form
def preferences(request: UserRequest) -> HttpResponse:
    """Show or change how the user is told of what."""
    ways = services.ways_of(request.user)
    names = {kind: {way: f"{kind}.{way}" for way in WAYS} for kind in ways}  # of the boxes; only ticked ones are sent
    if request.method == "POST":
        ticked = {
            kind: Ways(**{way: name in request.POST for way, name in boxes.items()}) for kind, boxes in names.items()
        }
        services.choose_ways(request.user, ticked)
        messages.success(request, _("Your choice is saved."))
        return redirect("notifications:preferences")
    rows = [
        (kind, KIND_NAMES[kind], [(name, getattr(ways[kind], way)) for way, name in boxes.items()])
        for kind, boxes in names.items()
    ]
    return render(request, "notifications/preferences.html", {"rows": rows})


@signed_in_page
def announcement_list(request: UserRequest) -> HttpResponse:
    """Show the announcements that the user has not dismissed: the part of a page that changes."""
    return _announcements(request)


@require_POST
@login_required
def dismiss(request: UserRequest, announcement_id: int) -> HttpResponse:
    """Show the announcement to the user no more."""
    announcements.dismiss(get_object_or_404(Announcement, pk=announcement_id), request.user)
    if request.htmx:
        return _announcements(request)
    return redirect("home")


def _announcements(request: UserRequest) -> HttpResponse:
    return render(request, "notifications/_announcements.html", {"found": announcements.current_for(request.user)})


def _with_texts(notifications: Iterable[Notification]) -> list[dict[str, object]]:
    return [{"row": row, "text": text_of(row)} for row in notifications]


def _ids(texts: list[str]) -> list[int]:
    """Return the ids among these texts; what is none is ignored."""
    return [int(text) for text in texts[:100] if text.isdecimal() and len(text) < 19]
