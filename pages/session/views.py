"""The page of a session."""

from typing import Any, Final

from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone

from accounts.requests import UserRequest, signed_in_page
from pages.session import steps
from pages.session.advice import advice_for
from pages.session.logs.views import log_context
from pages.session.queries import array_place_of, visible_session
from scheduler.advice.place import place_of
from scheduler.advice.wait_help import help_for
from sessions.access.ssh_command import ssh_command, ssh_config
from sessions.conversion import services as conversions
from sessions.ending import services as ending
from sessions.idle import enforcement as idle
from sessions.launching import group_choice
from sessions.lifecycle import LIVE, Status
from sessions.parking import services as parking
from sessions.resizing.sizes import StoredResize
from specs.template_launches import origin_of

CONVERSIONS_SHOWN: Final = 10


@signed_in_page
def detail(request: UserRequest, session_id: str) -> HttpResponse:
    """Show one session; return only the live part to htmx."""
    session = visible_session(request, session_id)
    events = list(session.events.select_related("actor"))
    start = steps.start_steps(session, events)
    may_operate = request.user.is_superuser or session.owner_id == request.user.pk  # as `operable_by`
    requested_end = ending.requested_end_of(session)
    is_waiting = session.status == Status.PENDING
    context: dict[str, Any] = {
        "session": session,
        "may_operate": may_operate,
        "events": events,
        "steps": start,
        "is_started": steps.is_started(start),
        "start_span": steps.total(start),
        "place": place_of(session),
        "help": help_for([session.pk]).get(session.pk) if is_waiting and session.owner_id == request.user.pk else None,
        "group_waits": group_choice.waits_on_page(session),
        "notice": (notice := idle.notice_of(session)),
        "is_parked_as_idle": notice is not None and idle.will_be_parked(session, notice.rule),
        "advice": advice_for(session, events, timezone.now()),
        "mounts": session.mounts.all(),
        "apps": session.image.apps.all() if session.status == Status.RUNNING else [],
        "ssh_command": ssh_command(session),
        "ssh_config": ssh_config(session),
        "conversions": conversions.of_session(session)[:CONVERSIONS_SHOWN],
        "retained_until": parking.retained_until(session),
        "origin": origin_of(session),
        "array_place": array_place_of(session, request.user),
        "resize": StoredResize.of_whole(session),
        "requested_end": requested_end,
        "may_undo": requested_end is not None and requested_end.may_be_undone_by(request.user),
        "may_end": session.rank == 0 and session.whole_status in LIVE - {Status.TERMINATING},
        "may_park": parking.is_offered(session),
        "may_convert": session.status == Status.RUNNING and conversions.may_convert(request.user, session),
    }
    if request.htmx:
        return render(request, "sessions/_detail.html", context)
    return render(request, "sessions/detail.html", context | (log_context(session) if may_operate else {}))
