"""What a session's container has that its image has not: asked of its host, and kept for a minute."""

from datetime import timedelta
from typing import Any, Final

from django.db import transaction
from django.db.models import Q

from resources import clock
from sessions import notify
from sessions.lifecycle import Status
from sessions.models import ChangeReport, ReportState, Session

MAX_AGE: Final = timedelta(minutes=1)
DEADLINE: Final = timedelta(minutes=2)  # until the host has looked, else it is asked again


def current(session: Session) -> ChangeReport | None:
    """Return the report that the host has made, or is making, within the last minutes; None where it is to be asked."""
    report = ChangeReport.objects.filter(session=session, attempt=session.attempt).first()
    if report is None:
        return None
    since = report.made_at or report.requested_at
    return report if clock.now() - since < (DEADLINE if report.state == ReportState.QUEUED else MAX_AGE) else None


def request(session: Session) -> ChangeReport:
    """Return the current report, or one that the session's host is now asked for."""
    if report := current(session):
        return report
    with transaction.atomic():
        asked = {
            "attempt": session.attempt,
            "state": ReportState.QUEUED,
            "requested_at": clock.now(),
            "made_at": None,
        }
        asked |= {"problem": "", "report": {}, "recipe": ""}
        if session.status != Status.RUNNING or session.host is None:
            asked |= {"state": ReportState.FAILED, "made_at": clock.now(), "problem": "The session does not run."}
        report, _ = ChangeReport.objects.update_or_create(session=session, defaults=asked)
        if session.host and report.state == ReportState.QUEUED:
            notify.send_to_host(session.host.name, "report_changes", session.pk)
    return report


def waiting(session_id: str) -> ChangeReport | None:
    """Return the report if its host is still to make it."""
    waiting = ChangeReport.objects.filter(session_id=session_id, state=ReportState.QUEUED)
    return waiting.select_related("session__image").first()


def store(report: ChangeReport, *, content: dict[str, Any], recipe: str, problem: str = "") -> None:
    """Keep what the host has found, or why it found nothing, unless it was asked again meanwhile."""
    state = ReportState.FAILED if problem else ReportState.READY
    found = {"state": state, "report": content, "recipe": recipe, "problem": problem, "made_at": clock.now()}
    asked = Q(session=report.session_id, state=ReportState.QUEUED, requested_at=report.requested_at)
    if ChangeReport.objects.filter(asked).update(**found):
        notify.sessions_changed([(report.session_id, report.session.owner_id, report.session.project_id)])
